// SPDX-License-Identifier: MPL-2.0

// Package serve runs the provider as a process: how the command line, a terminal or the system ends it, and what its
// responses may contain.
package serve

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6/tf6server"
)

// Serve serves the provider under the address until the command line closes it. Serving also ends on SIGTERM, which
// is sent to whole process groups, on SIGHUP, and once the command line that started the process is gone: then all
// running calls are cancelled, and leave ends the process.
func Serve(address string, made func() provider.Provider, debug bool, leave func()) error {
	life := newLifetime(leave)
	factory := func() tfprotov6.ProviderServer {
		return newServer(providerserver.NewProtocol6(made())(), life)
	}

	if debug {
		// In debug mode, the user has started the process, and ends it.
		return tf6server.Serve(address, factory, tf6server.WithManagedDebug())
	}

	stopOnSignals(life)

	if err := tf6server.Serve(address, factory); err != nil {
		return err
	}

	// The command line has closed the provider. Calls that are still running were interrupted twice.
	life.finish()

	return nil
}

// stopOnSignals stops the lifetime on SIGTERM and SIGHUP unless they are ignored, and once the process that started
// this one is gone.
func stopOnSignals(life *lifetime) {
	told := make(chan os.Signal, 1)

	for _, signalled := range []os.Signal{syscall.SIGTERM, syscall.SIGHUP} {
		// It is ignored under nohup, for example.
		if !signal.Ignored(signalled) {
			signal.Notify(told, signalled)
		}
	}

	// If the command line is gone, nobody reads the log of the provider. Writing it must not end the process.
	signal.Ignore(syscall.SIGPIPE)

	go func() {
		for range told {
			life.stop()
		}
	}()

	go func() {
		awaitParent()
		life.stop()
	}()
}
