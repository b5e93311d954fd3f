// SPDX-License-Identifier: MPL-2.0

package report

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

const (
	// generator is the program that draws reports.
	generator = "terraform-provider-talosupgrade"
	// signature is in the head of every report, by which it is known again.
	signature = `<meta name="generator" content="` + generator + ` `
	// headMost is how far into a file it is looked for.
	headMost = 4 << 10

	directoryMode = 0o755
	// A report holds nothing secret, and whoever runs a pipeline has to be able to
	// keep it. What the umask of the process forbids stays forbidden.
	fileMode = 0o644
)

// ErrForeign is wrapped when the path is that of a file that is no report.
var ErrForeign = errors.New("it is there already and is no report of this provider")

// Check tells whether a report can be written to the path, and where that is: it is
// absolute, and leads through no symbolic link. It makes the directories that are
// missing. The error names the path and wraps [ErrForeign] where somebody else's file
// would be lost.
func Check(path string) (string, error) {
	place, err := filepath.Abs(path)
	if err != nil {
		return "", refused(path, err)
	}

	if _, err := os.Lstat(place); err == nil {
		resolved, err := filepath.EvalSymlinks(place)
		if err != nil {
			return "", refused(place, err)
		}

		place = resolved
	}

	if err := ours(place); err != nil {
		return "", refused(place, err)
	}

	if err := os.MkdirAll(filepath.Dir(place), directoryMode); err != nil {
		return "", refused(place, err)
	}

	// File modes alone do not tell.
	probe, err := begin(place)
	if err != nil {
		return "", refused(place, err)
	}

	return place, errors.Join(probe.Close(), os.Remove(probe.Name()))
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
	case len(head) > 0 && !bytes.Contains(head, []byte(signature)):
		return ErrForeign
	default:
		return nil
	}
}

// partialOf is where the file lies that is not whole yet: one that a run left that
// was killed goes with the next.
func partialOf(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".partial")
}

// begin makes the file that is not whole yet, anew: what lies in its place may be a
// link that somebody else put there.
func begin(path string) (*os.File, error) {
	if err := os.Remove(partialOf(path)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}

	return os.OpenFile(partialOf(path), os.O_CREATE|os.O_EXCL|os.O_WRONLY, fileMode)
}

// replace puts the content in the place of the file, whole or not at all. A file
// that is there keeps its mode.
func replace(path string, content []byte) error {
	partial, err := begin(path)
	if err != nil {
		return refused(path, err)
	}

	_, err = partial.Write(content)

	if info, missing := os.Stat(path); err == nil && missing == nil {
		err = partial.Chmod(info.Mode().Perm())
	}

	err = errors.Join(err, partial.Close())
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
	var (
		about  *fs.PathError
		linked *os.LinkError
	)

	switch {
	case errors.As(err, &about):
		err = about.Err
	case errors.As(err, &linked):
		err = linked.Err
	}

	return fmt.Errorf("%s cannot be written: %w", path, err)
}

func exists(path string) bool {
	_, err := os.Stat(path)

	return err == nil
}
