cluster            = "edge-oslo"
talos_version      = "1.13.4"
kubernetes_version = "1.35.2"
