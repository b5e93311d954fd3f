// SPDX-License-Identifier: MPL-2.0

// Package serve is the provider as a process: what the command line, a terminal or
// a system may do to it, and what leaves it.
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

// Serve serves the provider under the address until the command line closes it. It
// also ends, after everything that is going on has been cancelled, when it is
// told to by SIGTERM, as whole process groups are, or by SIGHUP, and when the
// command line that started it is gone: leave ends the process then.
func Serve(address string, made func() provider.Provider, debug bool, leave func()) error {
	life := newLifetime(leave)
	factory := func() tfprotov6.ProviderServer {
		return newServer(providerserver.NewProtocol6(made())(), life)
	}

	if debug {
		// Whoever debugs has started the process, and ends it.
		return tf6server.Serve(address, factory, tf6server.WithManagedDebug())
	}

	heed(life)

	if err := tf6server.Serve(address, factory); err != nil {
		return err
	}

	// The command line has closed the provider. What is still going on then was
	// interrupted twice.
	life.finish()

	return nil
}

// heed ends the lifetime with a signal, or with the process that started this one.
func heed(life *lifetime) {
	told := make(chan os.Signal, 1)

	for _, signalled := range []os.Signal{syscall.SIGTERM, syscall.SIGHUP} {
		// Under nohup, for example.
		if !signal.Ignored(signalled) {
			signal.Notify(told, signalled)
		}
	}

	// Nobody reads the log of a provider whose command line is gone; to write it must
	// not end the process.
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
