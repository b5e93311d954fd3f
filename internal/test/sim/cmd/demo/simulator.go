// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/workspace"
)

const (
	readyTimeout   = 2 * time.Minute
	verdictTimeout = time.Minute
	// stopGrace is how long the simulator may take to stop what it started.
	stopGrace = 20 * time.Second
)

// faultsFile is the fault script in the simulator's directory.
const faultsFile = "faults.yaml"

// simulator is a running talossim.
type simulator struct {
	program, dir string
	command      *exec.Cmd
	// stop interrupts it; ended is closed once it is gone.
	stop  context.CancelFunc
	ended chan struct{}
	err   error
	log   bytes.Buffer
}

// startSimulator starts talossim on dir and returns once it is ready. It does not stop with ctx, because Terraform
// needs it to stop in good order.
func startSimulator(ctx context.Context, program, dir string, wanted scenario) (*simulator, error) {
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	made := &simulator{program: program, dir: dir, stop: stop, ended: make(chan struct{})}

	if err := os.WriteFile(made.path(faultsFile), []byte(wanted.faults()), 0o600); err != nil {
		stop()

		return nil, fmt.Errorf("writing the fault script: %w", err)
	}

	made.command = exec.CommandContext(background, program, "up", "--dir", dir,
		"--control-planes", strconv.Itoa(wanted.controlPlanes), "--workers", strconv.Itoa(wanted.workers),
		"--talos", wanted.from, "--kubernetes", wanted.kubernetes, "--api-server", wanted.apiServer,
		"--speed", strconv.Itoa(wanted.speed), "--pods", strconv.Itoa(wanted.pods), "--faults", made.path(faultsFile))
	made.command.Env = workspace.Environment(os.Environ())
	workspace.Isolate(made.command, stopGrace)

	reader, writer := io.Pipe()
	made.command.Stdout, made.command.Stderr = writer, &made.log

	if err := made.command.Start(); err != nil {
		stop()

		return nil, fmt.Errorf("starting the simulator: %w", err)
	}

	ready := make(chan struct{})
	go func() { made.listen(reader, ready) }()

	go func() {
		made.err = made.command.Wait()
		workspace.Reap(made.command)
		// A pipe's writer never fails to close.
		_ = writer.Close()
		close(made.ended)
	}()

	if err := made.await(ctx, ready); err != nil {
		return nil, err
	}

	return made, nil
}

// listen waits for the line "ready" and discards all other output.
func (s *simulator) listen(output io.Reader, ready chan<- struct{}) {
	scanner := bufio.NewScanner(output)
	for scanner.Scan() {
		if scanner.Text() == "ready" {
			close(ready)

			break
		}
	}

	_, _ = io.Copy(io.Discard, output)
}

func (s *simulator) await(ctx context.Context, ready <-chan struct{}) error {
	timeout := time.NewTimer(readyTimeout)
	defer timeout.Stop()

	var err error

	select {
	case <-ready:
		return nil
	case <-s.ended:
		return fmt.Errorf("the simulator ended before it was ready: %w\n%s", s.err, s.log.Bytes())
	case <-timeout.C:
		err = fmt.Errorf("the simulator was not ready after %s", readyTimeout)
	case <-ctx.Done():
		err = ctx.Err()
	}

	return errors.Join(err, s.close())
}

// close stops the simulator and everything that it started. A second call
// returns what the first one did.
func (s *simulator) close() error {
	s.stop()
	<-s.ended

	// It should be interrupted and end with exit code 0; the error contains the context that interrupted it all the
	// same.
	if s.err == nil || errors.Is(s.err, context.Canceled) {
		return nil
	}

	return fmt.Errorf("the simulator did not stop in good order: %w\n%s", s.err, s.log.Bytes())
}

func (s *simulator) path(name string) string { return filepath.Join(s.dir, name) }

// verdict returns the judgement of what happened so far.
func (s *simulator) verdict(ctx context.Context) (verdict, error) {
	bounded, cancel := context.WithTimeout(ctx, verdictTimeout)
	defer cancel()

	var complaint bytes.Buffer

	command := exec.CommandContext(bounded, s.program, "verdict", "--dir", s.dir)
	command.Stderr = &complaint
	workspace.Isolate(command, time.Second)

	// A verdict that finds violations may say so with its exit code as well.
	output, err := command.Output()

	var judged verdict
	if parsing := json.Unmarshal(output, &judged); parsing != nil {
		return verdict{}, fmt.Errorf("asking for the verdict: %w\n%s", errors.Join(err, parsing), &complaint)
	}

	return judged, nil
}
