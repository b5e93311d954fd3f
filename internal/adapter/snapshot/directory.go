// SPDX-License-Identifier: MPL-2.0

package snapshot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// probePattern is the name of what is created and removed again to check whether that is possible: file modes alone
// do not show it.
const probePattern = ".talosupgrade-check-*"

// Check implements [cluster.SnapshotStore]. Errors wrap cluster.ErrRefused and name the directory, which is not
// created.
func (s *Store) Check(ctx context.Context) (exposed string, err error) {
	if err := cluster.Ended(ctx); err != nil {
		return "", err
	}

	directory, err := s.absolute()
	if err != nil {
		return "", err
	}

	what := "unable to keep snapshots of etcd in " + directory

	ancestor, err := nearest(directory)
	if err != nil {
		return "", refused(what, err)
	}

	if err := probe(ancestor, ancestor == directory); err != nil {
		return "", refused(what, err)
	}

	if ancestor != directory {
		return "", nil
	}

	return exposure(directory), nil
}

// exposure returns a message if users other than the owner have access to an existing directory; empty if not, or
// if file modes do not show it on this system.
func exposure(directory string) string {
	info, err := os.Stat(directory)
	if err != nil || runtime.GOOS == "windows" || info.Mode().Perm()&^directoryMode == 0 {
		return ""
	}

	return fmt.Sprintf("the directory %s is open to others than its owner (mode %04o)", directory, info.Mode().Perm())
}

// nearest returns the directory itself, or the innermost one above it that exists.
func nearest(directory string) (string, error) {
	for at := directory; ; at = filepath.Dir(at) {
		info, err := os.Stat(at)

		switch {
		case err == nil && info.IsDir():
			return at, nil
		case err == nil:
			return "", errors.New(at + " is no directory")
		case !errors.Is(err, os.ErrNotExist):
			return "", err
		case isLink(at):
			return "", errors.New(at + " is a symbolic link to what does not exist")
		case at == filepath.Dir(at):
			return "", err
		}
	}
}

// removeEmpty removes a directory and those above it, up to the one that existed before. Those that are not empty
// are kept.
func removeEmpty(directory, ancestor string) {
	for at := directory; at != ancestor && at != filepath.Dir(at); at = filepath.Dir(at) {
		if os.Remove(at) != nil {
			return
		}
	}
}

// probe tries in the directory what Save would do first: create a file, or the missing directories.
func probe(directory string, file bool) error {
	if !file {
		made, err := os.MkdirTemp(directory, probePattern)
		if err != nil {
			return err
		}

		return os.Remove(made)
	}

	made, err := os.CreateTemp(directory, probePattern)
	if err != nil {
		return err
	}

	return errors.Join(made.Close(), os.Remove(made.Name()))
}

// syncDirectory makes the names of files survive a loss of power, if the system supports that.
func syncDirectory(path string) error {
	if runtime.GOOS == "windows" {
		return nil
	}

	directory, err := os.Open(path)
	if err != nil {
		return err
	}

	err = directory.Sync()
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EINVAL) {
		err = nil // some file systems in user space
	}

	return errors.Join(err, directory.Close())
}

// failure is an error of the runner's own disk, which waiting does not fix.
type failure struct {
	what  string
	cause error
}

func refused(what string, cause error) error { return &failure{what: what, cause: cause} }

// Error implements error.
func (f *failure) Error() string { return f.what + ": " + f.cause.Error() }

// Unwrap returns the meanings, which are not in the text, and the cause.
func (f *failure) Unwrap() []error { return []error{cluster.ErrRefused, cluster.ErrUnsaved, f.cause} }

// isLink reports whether the path is a symbolic link, wherever it leads.
func isLink(path string) bool {
	info, err := os.Lstat(path)

	return err == nil && info.Mode()&os.ModeSymlink != 0
}

func exists(path string) bool {
	_, err := os.Lstat(path)

	return !errors.Is(err, os.ErrNotExist)
}
