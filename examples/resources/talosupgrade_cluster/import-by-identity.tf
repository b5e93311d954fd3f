import {
  to = talosupgrade_cluster.prod
  identity = {
    id = "Uv3rS1mVn2kQ8xWb5tYc7dZe9fAg4hBi6jCk0lDm_oE="
  }
}
