// SPDX-License-Identifier: MPL-2.0

// Command demo upgrades a simulated Talos cluster of five nodes with a real
// terraform apply and shows what happens to each node meanwhile. It fails when
// anything about the upgrade is off, and leaves nothing behind.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// slowest and fastest are what -speed may be: slower, and Terraform is given up on;
// faster, and what the provider does in real time takes simulated hours.
const (
	slowest = 5
	fastest = 240
)

func main() {
	keep := flag.Bool("keep", false, "keep the directory with configuration, history and logs")
	speed := flag.Int("speed", 60, fmt.Sprintf("simulated seconds in a second, from %d to %d; fewer leave time to look around", slowest, fastest))
	flag.Parse()

	if *speed < slowest || *speed > fastest {
		fmt.Fprintf(os.Stderr, "demo: -speed is %d, want %d to %d\n", *speed, slowest, fastest)
		os.Exit(2)
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)

	show := newScreen(os.Stdout)
	err := run(ctx, show, scenario{
		controlPlanes: 3, workers: 2, pods: 6, speed: *speed,
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
