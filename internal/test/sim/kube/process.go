// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// process is a child in a process group of its own that does not outlive this
// one.
type process struct {
	name    string
	command *exec.Cmd
	log     string
	// done is closed when the child has ended; err says how, after that.
	done chan struct{}
	err  error
}

// startProcess runs a program with its standard error in DIR/NAME.log. The
// standard output goes there as well, unless stdout is given.
func startProcess(dir, name, program string, stdout io.Writer, args ...string) (*process, error) {
	path := filepath.Join(dir, name+".log")

	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", name, err)
	}

	command := exec.Command(program, args...)
	command.Stderr = file
	command.Stdout = stdout
	// Nothing the person set for their own tools may reach these.
	command.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + os.TempDir()}
	command.SysProcAttr = ownGroup()

	if stdout == nil {
		command.Stdout = file
	}

	child := &process{name: name, command: command, log: path, done: make(chan struct{})}
	started := make(chan error, 1)

	go func() {
		// The parent-death signal of Linux follows the thread that started the
		// child, so that thread must live as long as the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(child.done)
		defer file.Close()

		err := command.Start()
		started <- err

		if err == nil {
			child.err = command.Wait()
		}
	}()

	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}

	return child, nil
}

// stop kills the child and everything in its process group: none of these
// processes has anything to save.
func (p *process) stop() error {
	select {
	case <-p.done:
		return nil
	default:
	}

	if err := kill(p.command.Process); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stopping %s: %w", p.name, err)
	}

	// A killed process ends; only the kernel can delay it.
	<-p.done

	return nil
}

// failure describes a child that ended by itself, with the end of its log.
func (p *process) failure() error {
	return fmt.Errorf("%s ended unexpectedly (%w); the end of %s:\n%s", p.name, p.exit(), p.log, tail(p.log))
}

func (p *process) exit() error {
	if p.err == nil {
		return errors.New("exit status 0")
	}

	return p.err
}

// tail is the last lines of a file, for an error message.
func tail(path string) string {
	const lines, window = 12, 8 << 10

	file, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer file.Close()

	if info, err := file.Stat(); err == nil && info.Size() > window {
		if _, err := file.Seek(-window, io.SeekEnd); err != nil {
			return err.Error()
		}
	}

	content, err := io.ReadAll(file)
	if err != nil {
		return err.Error()
	}

	all := bytes.Split(bytes.TrimSpace(content), []byte("\n"))

	return string(bytes.Join(all[max(0, len(all)-lines):], []byte("\n")))
}
