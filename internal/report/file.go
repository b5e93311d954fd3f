// SPDX-License-Identifier: MPL-2.0

package report

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// generator is in the head of every report, by which it is known again.
const generator = "terraform-provider-talosupgrade"

// headMost is how far into a file the name of its generator is looked for.
const headMost = 4 << 10

// ErrForeign is wrapped when the path is that of a file that is no report.
var ErrForeign = errors.New("it is there already and is no report of this provider")

// Check tells whether a report can be written to the path. It makes the directories
// that are missing. The error names the path and wraps [ErrForeign] where somebody
// else's file would be lost.
func Check(path string) error {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}

	if err := ours(absolute); err != nil {
		return fmt.Errorf("%s: %w", absolute, err)
	}

	directory := filepath.Dir(absolute)
	if err := os.MkdirAll(directory, directoryMode); err != nil {
		return fmt.Errorf("%s: %w", absolute, err)
	}

	// File modes alone do not tell.
	probe, err := os.CreateTemp(directory, partialPattern)
	if err != nil {
		return refused(absolute, err)
	}

	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}

// ours refuses what must not be written over.
func ours(path string) error {
	info, err := os.Stat(path)

	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.IsDir():
		return errors.New("it is a directory")
	case !info.Mode().IsRegular():
		return ErrForeign
	}

	file, err := os.Open(path)
	if err != nil {
		return err
	}

	head, err := io.ReadAll(io.LimitReader(file, headMost))
	err = errors.Join(err, file.Close())

	switch {
	case err != nil:
		return err
	case len(head) > 0 && !bytes.Contains(head, []byte(generator)):
		return ErrForeign
	default:
		return nil
	}
}

const (
	// partialPattern names what is not whole yet.
	partialPattern = ".talosupgrade-report-*"
	directoryMode  = 0o755
	// A report holds nothing secret, and whoever runs a pipeline has to be able to
	// keep it.
	fileMode = 0o644
)

// replace puts the content in the place of the file, whole or not at all.
func replace(path string, content []byte) error {
	partial, err := os.CreateTemp(filepath.Dir(path), partialPattern)
	if err != nil {
		return refused(path, err)
	}

	_, err = partial.Write(content)

	err = errors.Join(err, partial.Chmod(fileMode), partial.Close())
	if err == nil {
		err = os.Rename(partial.Name(), path)
	}

	if err != nil {
		// What is in the way of its removal was in the way of it all.
		_ = os.Remove(partial.Name())

		return refused(path, err)
	}

	return nil
}

// refused is the error about the path itself: of what is not whole yet nobody knows.
func refused(path string, err error) error {
	var about *os.PathError
	if errors.As(err, &about) {
		err = about.Err
	}

	return fmt.Errorf("%s cannot be written: %w", path, err)
}

func exists(path string) bool {
	_, err := os.Stat(path)

	return err == nil
}
