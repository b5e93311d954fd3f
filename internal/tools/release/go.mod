module github.com/vitistack/terraform-provider-talosupgrade/internal/tools/release

go 1.26.0
