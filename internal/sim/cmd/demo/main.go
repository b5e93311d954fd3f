// SPDX-License-Identifier: MPL-2.0

// Command demo upgrades a simulated Talos cluster of five nodes with a real
// terraform apply and shows what happens to each node meanwhile. It fails when
// anything about the upgrade is off, and leaves nothing behind.
package main

import (
	"context"
	"flag"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	keep := flag.Bool("keep", false, "keep the directory with configuration, history and logs")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)

	show := newScreen(os.Stdout)
	err := run(ctx, show, scenario{
		controlPlanes: 3, workers: 2, pods: 6, speed: 60,
		from: "1.12.6", to: "1.13.4", kubernetes: "1.34.2",
	}, *keep)
	interrupted := ctx.Err() != nil

	stop()

	switch {
	case interrupted:
		show.line(bad, "\nThe demo was interrupted; what it started is stopped.")
		os.Exit(1)
	case err != nil:
		show.line(bad, "\nThe demo failed: %v", err)
		os.Exit(1)
	default:
		show.line(good, "\nThe demo passed.")
	}
}
