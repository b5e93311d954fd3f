// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/workspace"
)

// commandTimeout bounds one call of Terraform. The roll takes less than a
// minute at the demo's speed.
const commandTimeout = 8 * time.Minute

// terraform runs the command line in the demo's configuration.
type terraform struct {
	space *workspace.Workspace
	name  string
	logs  string
	show  *screen
}

// run calls Terraform, shows the lines that worth picks, and keeps all of its
// output in the logs. Any exit code but 0 is an error.
func (t *terraform) run(ctx context.Context, worth func(line string) bool, args ...string) error {
	bounded, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()

	log, err := os.Create(filepath.Join(t.logs, args[0]+".log"))
	if err != nil {
		return fmt.Errorf("keeping the output of %s: %w", t.name, err)
	}

	var all bytes.Buffer

	reader, writer := io.Pipe()
	shown := make(chan struct{})

	go func() {
		defer close(shown)
		t.follow(reader, worth)
	}()

	command := t.space.Command(bounded, append(append(args[:1:1], "-no-color", "-input=false"), args[1:]...)...)
	command.Stdout = io.MultiWriter(log, &all, writer)
	command.Stderr = command.Stdout

	err = t.space.Run(command)
	// A pipe's writer never fails to close.
	_ = writer.Close()
	<-shown

	if closing := log.Close(); err == nil && closing != nil {
		return fmt.Errorf("keeping the output of %s: %w", t.name, closing)
	}

	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%s %s: %w", t.name, args[0], ctx.Err())
	case bounded.Err() != nil:
		return fmt.Errorf("%s %s did not end within %s", t.name, args[0], commandTimeout)
	case err != nil:
		return fmt.Errorf("%s %s: %w\n\n%s", t.name, args[0], err, &all)
	default:
		return nil
	}
}

func (t *terraform) follow(output io.Reader, worth func(line string) bool) {
	scanner := bufio.NewScanner(output)
	for scanner.Scan() {
		if line := strings.TrimRight(scanner.Text(), " "); worth(line) {
			t.show.line(quiet, "%s: %s", t.name, line)
		}
	}

	_, _ = io.Copy(io.Discard, output)
}

// milestones picks Terraform's lines about the resource and the outcome.
func milestones(line string) bool {
	for _, prefix := range []string{"Plan: ", "Apply complete!", "Destroy complete!", "No changes."} {
		if strings.HasPrefix(line, prefix) {
			return true
		}
	}

	return strings.HasPrefix(line, "talosupgrade_cluster.") && !strings.Contains(line, "Refreshing state")
}

// rollLine is a line of a plan about the steps of an apply.
var rollLine = regexp.MustCompile(`^(Warning: Planned: Rolling upgrade|One node of|Up to \d+ workers|Planned duration: |  (step|\d+)  |  (Hop \d+ of|Talos|Kubernetes) )`)

// roll picks the lines of a plan that show what an apply will do.
func roll(line string) bool { return rollLine.MatchString(line) || strings.HasPrefix(line, "Plan: ") }
