// SPDX-License-Identifier: MPL-2.0

package toolchain

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"strings"
	"sync"
	"time"
)

// reportEvery is how often a long build reports its progress in a line, statusEvery how often in the status of a
// terminal.
const (
	reportEvery = 15 * time.Second
	statusEvery = time.Second
)

// build is one invocation of the Go compiler.
type build struct {
	// dir is the module it runs in.
	dir string
	// output is a file, or a directory when there are several packages.
	output   string
	packages []string
	// flags come before the packages.
	flags []string
	// link has flags for the linker, in addition to those that omit debug information.
	link string
	// target is the platform to compile for; the zero value is this machine.
	target Platform
	// what is the name of the build in progress and errors.
	what string
}

// run compiles, and reports to progress at an interval.
func (b build) run(ctx context.Context, progress io.Writer) error {
	command, err := goCommand(ctx, b.dir, b.args()...)
	if err != nil {
		return err
	}

	command.Env = append(command.Env, b.target.environment()...)

	reader, writer := io.Pipe()
	command.Stdout, command.Stderr = writer, writer

	log := &buildLog{started: time.Now()}
	stop := log.report(progress, b.what)

	var reading sync.WaitGroup

	reading.Go(func() { log.read(reader) })

	err = command.Run()
	// Closing the writer of a pipe never fails.
	_ = writer.Close()

	reading.Wait()
	stop()

	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("building %s: %w", b.what, ctx.Err())
	case err != nil:
		return fmt.Errorf("building %s in %s: %w\n%s", b.what, b.dir, err, log.tail())
	default:
		return nil
	}
}

// announced is run with a notice before it and a line after it.
func (b build) announced(ctx context.Context, to io.Writer, notice string) error {
	started := time.Now()

	if watched, can := to.(progress); can && watched.Watched() {
		watched.Status(notice)
	} else {
		fmt.Fprintln(to, notice)
	}

	if err := b.run(ctx, to); err != nil {
		return err
	}

	fmt.Fprintf(to, "built %s in %s\n", b.what, time.Since(started).Round(time.Second))

	return nil
}

func (b build) args() []string {
	// The result does not depend on the commit, unless the flags say so.
	args := []string{"build", "-v", "-trimpath", "-buildvcs=false", "-ldflags", strings.TrimSpace("-s -w " + b.link), "-o", b.output}
	args = append(args, b.flags...)

	return append(args, b.packages...)
}

// goCommand returns a call of the Go command that the environment of its user cannot change.
func goCommand(ctx context.Context, dir string, args ...string) (*exec.Cmd, error) {
	program, err := exec.LookPath("go")
	if err != nil {
		return nil, errors.New("the go command is not on PATH: install Go (https://go.dev/dl)")
	}

	command := exec.CommandContext(ctx, program, args...)
	command.Dir = dir
	command.Env = append(os.Environ(),
		"GOTOOLCHAIN=local", "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off", "GOOS=", "GOARCH=",
		// For the compiler itself: thousands of short processes gain more from
		// collecting rarely than they cost in memory.
		"GOGC=400")
	// The compiler handles an interrupt: it cleans up and ends.
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = 10 * time.Second

	return command, nil
}

// buildLog reads the output of "go build -v": a line for each package that is compiled, and what went wrong.
type buildLog struct {
	started time.Time

	mutex    sync.Mutex
	packages int
	last     string
	other    []string
}

func (l *buildLog) read(output io.Reader) {
	scanner := bufio.NewScanner(output)
	scanner.Buffer(make([]byte, 0, bufio.MaxScanTokenSize), 1<<20)

	for scanner.Scan() {
		l.line(strings.TrimSpace(scanner.Text()))
	}

	// A line too long for the scanner must not block the compiler.
	_, _ = io.Copy(io.Discard, output)
}

func (l *buildLog) line(text string) {
	l.mutex.Lock()
	defer l.mutex.Unlock()

	if text != "" && !strings.ContainsAny(text, " #:\t") && path.Clean(text) == text {
		l.packages++
		l.last = text

		return
	}

	l.other = append(l.other, text)
}

// tail returns the last lines of a failed build, without the packages.
func (l *buildLog) tail() string {
	const lines = 25

	l.mutex.Lock()
	defer l.mutex.Unlock()

	other := l.other[max(0, len(l.other)-lines):]

	return strings.Join(other, "\n")
}

// report reports the progress of the build at an interval, until the returned function is called.
func (l *buildLog) report(to io.Writer, what string) (stop func()) {
	done := make(chan struct{})
	every, say := reportEvery, func(status string) { _, _ = fmt.Fprintln(to, status) }
	end := func() {}

	if watched, can := to.(progress); can && watched.Watched() {
		every, say = statusEvery, watched.Status
		end = func() { watched.Status("") }
	}

	var reporting sync.WaitGroup

	reporting.Go(func() {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		defer end()

		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				say(l.status(what))
			}
		}
	})

	return func() {
		close(done)
		reporting.Wait()
	}
}

func (l *buildLog) status(what string) string {
	l.mutex.Lock()
	defer l.mutex.Unlock()

	line := fmt.Sprintf("building %s: %s, %d packages so far", what, time.Since(l.started).Round(time.Second), l.packages)
	if l.last != "" {
		line += ", now " + l.last
	}

	return line
}
