// SPDX-License-Identifier: MPL-2.0

// Command terraform-provider-talosupgrade is a Terraform provider that upgrades Talos Linux and Kubernetes clusters.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/serve"
)

// address is the source address of the provider in Terraform.
const address = "registry.terraform.io/vitistack/talosupgrade"

// version is set at link time.
var version = "dev"

func main() {
	debug := flag.Bool("debug", false, "run under a debugger: print what to put into TF_REATTACH_PROVIDERS and serve until interrupted")
	show := flag.Bool("version", false, "print the version of the provider and end")
	flag.Parse()

	if *show {
		fmt.Println(version)

		return
	}

	// The errors of requests already contain what client-go logs about broken connections, and standard error belongs
	// to the plugin.
	klog.SetLogger(logr.Discard())

	if err := serve.Serve(address, provider.New(version), *debug, func() { os.Exit(0) }); err != nil {
		log.Fatal(err)
	}
}
