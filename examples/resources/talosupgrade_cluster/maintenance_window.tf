# Nodes start to move between 22:00 and 04:00 of the nights before working days.
resource "talosupgrade_cluster" "nightly" {
  talos_version = "1.13.4"

  maintenance_window = {
    cron      = "0 22 * * 0-4"
    duration  = "6h"
    time_zone = "Europe/Oslo"
  }
}
