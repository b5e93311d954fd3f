output "way" {
  value = provider::talosupgrade::upgrade_path(
    { talos = "1.11.3", kubernetes = "1.33.4" },
    { talos = "1.13.4", kubernetes = "1.35.2" },
  )
}
