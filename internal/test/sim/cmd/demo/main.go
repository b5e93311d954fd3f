// SPDX-License-Identifier: MPL-2.0

// Command demo upgrades a simulated Talos cluster of five nodes with a real terraform apply and shows what happens
// to each node meanwhile. It fails if anything about the upgrade is wrong, and leaves nothing behind.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

// slowest and fastest bound -speed: if it is slower, Terraform times out; if it is faster, what the provider does
// in real time takes simulated hours.
const (
	slowest = 5
	fastest = 240
)

func main() {
	keep := flag.Bool("keep", false, "keep the directory with configuration, history and logs")
	speed := flag.Int("speed", 60, fmt.Sprintf("simulated seconds in a second, from %d to %d; fewer leave time to look around", slowest, fastest))
	story := flag.String("story", storyRoll, "what happens: "+storyRoll+" (every node is upgraded) or "+storyFallback+
		" (a node boots its old system again, and the next apply finishes)")
	apiServer := flag.String("kubernetes", apiServerMemory, "Kubernetes API of the simulator: "+apiServerMemory+", or "+apiServerReal+
		" (a real kube-apiserver, which is built in a clone of the repository)")
	flag.Parse()

	wrong := errors.Join(
		oneOf("story", *story, storyRoll, storyFallback), oneOf("kubernetes", *apiServer, apiServerMemory, apiServerReal))
	if *speed < slowest || *speed > fastest {
		wrong = errors.Join(wrong, fmt.Errorf("-speed is %d, want %d to %d", *speed, slowest, fastest))
	}

	if wrong != nil {
		fmt.Fprintln(os.Stderr, "demo:", wrong)
		os.Exit(2)
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)

	show := newScreen(os.Stdout)
	err := run(ctx, show, scenario{
		story: *story, apiServer: *apiServer,
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

// oneOf returns an error unless a flag has one of its values.
func oneOf(name, value string, values ...string) error {
	if slices.Contains(values, value) {
		return nil
	}

	return fmt.Errorf("-%s is %q, want %s", name, value, strings.Join(values, " or "))
}
