// SPDX-License-Identifier: MPL-2.0

// Command talossim runs a simulated Talos cluster that speaks the real
// protocols, and judges what was done to it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

const usage = `talossim runs a simulated Talos cluster that speaks the real protocols.

  talossim up --dir DIR [flags]        run a cluster in the foreground until SIGINT or SIGTERM
  talossim verdict --dir DIR [flags]   print, as JSON, what its history amounts to
  talossim history --dir DIR [flags]   print, as a table, what happened
  talossim add-node --dir DIR [flags]  let a machine join a running cluster
  talossim set-image --dir DIR [flags] change a component's image on a node by hand, as talosctl would
  talossim faults --dir DIR FILE       replace the fault script of a running cluster ("-": standard input)

Every command explains its flags with -h.
`

// errUsage is the error of a command line that was explained already.
var errUsage = errors.New("usage")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)

	stop()

	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUsage):
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "talossim:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, in io.Reader, out, progress io.Writer) error {
	if len(args) == 0 {
		fmt.Fprint(progress, usage)

		return errUsage
	}

	name, rest := args[0], args[1:]

	switch name {
	case "up":
		return up(ctx, rest, out, progress)
	case "verdict":
		return verdict(rest, out, progress)
	case "history":
		return printHistory(rest, out, progress)
	case "add-node":
		return addNode(ctx, rest, out, progress)
	case "set-image":
		return setImage(ctx, rest, progress)
	case "faults":
		return setFaults(ctx, rest, in, progress)
	case "help", "-h", "--help":
		fmt.Fprint(out, usage)

		return nil
	default:
		fmt.Fprintf(progress, "talossim: there is no command %q\n\n%s", name, usage)

		return errUsage
	}
}

// flags returns the flag set of a command, with the directory that all of them take.
func flags(name string, progress io.Writer) (set *flag.FlagSet, dir *string) {
	set = flag.NewFlagSet("talossim "+name, flag.ContinueOnError)
	set.SetOutput(progress)

	return set, set.String("dir", "", "directory of the simulation (required)")
}

// parse parses the flags and requires exactly the given number of arguments.
func parse(set *flag.FlagSet, args []string, dir *string, arguments int) error {
	if err := set.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}

		return errUsage
	}

	switch {
	case *dir == "":
		return fmt.Errorf("%s: --dir is required", set.Name())
	case set.NArg() != arguments:
		return fmt.Errorf("%s: got the arguments %q, want %d", set.Name(), set.Args(), arguments)
	default:
		return nil
	}
}
