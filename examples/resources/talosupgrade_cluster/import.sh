# The cluster that the provider reaches, whichever its ID is.
terraform import talosupgrade_cluster.prod current

# The same, but refused if the provider reaches another cluster.
terraform import talosupgrade_cluster.prod 'Uv3rS1mVn2kQ8xWb5tYc7dZe9fAg4hBi6jCk0lDm_oE='
