// SPDX-License-Identifier: MPL-2.0

// Command terraform-provider-talosupgrade is a Terraform provider that brings
// Talos clusters to the versions they should run.
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

// address is where Terraform looks for the provider.
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

	// What client-go has to say of a connection that breaks is in the errors of its
	// requests; standard error belongs to the plugin.
	klog.SetLogger(logr.Discard())

	if err := serve.Serve(address, provider.New(version), *debug, func() { os.Exit(0) }); err != nil {
		log.Fatal(err)
	}
}
