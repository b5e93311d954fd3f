# A registry behind a line that is often busy: five attempts, after pauses of 1, 2, 4 and 5 minutes.
resource "talosupgrade_cluster" "remote" {
  talos_version = "1.13.4"

  retry = {
    attempts = 5
    backoff  = "1m"
  }
}
