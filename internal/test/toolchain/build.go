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

// reportEvery is how often a long build says that it is alive: with a line, or with a
// status that somebody watches.
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
	// link is for the linker, on top of what leaves debugging out.
	link string
	// target is what it compiles for; this machine unless it is set.
	target Platform
	// what is the build called in progress and errors.
	what string
}

// run compiles and reports to progress every [reportEvery].
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
	// A pipe's writer never fails to close.
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

// announced runs with a notice before it and a line after it.
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
	// What is built does not depend on the commit, unless the flags say so.
	args := []string{"build", "-v", "-trimpath", "-buildvcs=false", "-ldflags", strings.TrimSpace("-s -w " + b.link), "-o", b.output}
	args = append(args, b.flags...)

	return append(args, b.packages...)
}

// goCommand is a call of the Go command that nothing in the environment of the
// person who runs it can bend.
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
	// The compiler ends by itself on an interrupt and cleans up.
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = 10 * time.Second

	return command, nil
}

// buildLog follows the output of "go build -v": a line for each package that
// is compiled, and whatever went wrong.
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

// tail is what is worth showing of a build that failed.
func (l *buildLog) tail() string {
	const lines = 25

	l.mutex.Lock()
	defer l.mutex.Unlock()

	other := l.other[max(0, len(l.other)-lines):]

	return strings.Join(other, "\n")
}

// report says now and then how far the build is, until the returned function is called.
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
