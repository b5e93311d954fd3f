// SPDX-License-Identifier: MPL-2.0

// Command setup prepares what the tests and the documentation need.
//
//	setup             finds, builds or fetches a command line, so that tests do
//	                  not have to
//	setup kubernetes  builds the programs of the real Kubernetes as well
//	setup cli         prints the path of the command line
//	setup demo        builds the demo with its simulator and prints its path
//	setup kubectl     builds a kubectl and prints its path
//	setup opa         builds an OPA and prints its path
//	setup schema FILE writes the schema of the provider as JSON, for tfplugindocs
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/toolchain"
)

var errUsage = errors.New("usage: setup [kubernetes | cli | demo | kubectl | opa | schema FILE]")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, toolchain.NewTerminal(os.Stderr))

	stop()

	if err != nil {
		fmt.Fprintln(os.Stderr, "setup:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	options := toolchain.Options{Progress: progress}

	switch {
	case len(args) == 0:
		return prepare(ctx, options)
	case len(args) == 1 && args[0] == "kubernetes":
		if _, err := toolchain.Kubernetes(ctx, options); err != nil {
			return err
		}

		return prepare(ctx, options)
	case len(args) == 1 && args[0] == "cli":
		cli, err := toolchain.Terraform(ctx, options)
		if err != nil {
			return err
		}

		_, err = fmt.Fprintln(out, cli.Path)

		return err
	case len(args) == 1 && args[0] == "demo":
		return locate(ctx, options, out, toolchain.BuildDemo)
	case len(args) == 1 && args[0] == "kubectl":
		return locate(ctx, options, out, toolchain.Kubectl)
	case len(args) == 1 && args[0] == "opa":
		return locate(ctx, options, out, toolchain.OPA)
	case len(args) == 2 && args[0] == "schema":
		return writeSchema(ctx, options, args[1])
	default:
		return errUsage
	}
}

// locate prints the path of a program that it builds.
func locate(ctx context.Context, options toolchain.Options, out io.Writer, build func(context.Context, toolchain.Options) (string, error)) error {
	path, err := build(ctx, options)
	if err != nil {
		return err
	}

	_, err = fmt.Fprintln(out, path)

	return err
}

func prepare(ctx context.Context, options toolchain.Options) error {
	cli, err := toolchain.Terraform(ctx, options)
	if err != nil {
		return err
	}

	fmt.Fprintf(options.Progress, "testing with %s %s (%s)\n", cli.Name, cli.Version, cli.Path)

	return nil
}
