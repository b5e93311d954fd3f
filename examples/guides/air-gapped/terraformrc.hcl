# ~/.terraformrc, or the file that TF_CLI_CONFIG_FILE names. OpenTofu: ~/.tofurc, registry.opentofu.org.
provider_installation {
  filesystem_mirror {
    path    = "/opt/terraform/providers"
    include = ["registry.terraform.io/vitistack/*"]
  }

  direct {
    exclude = ["registry.terraform.io/vitistack/*"]
  }
}
