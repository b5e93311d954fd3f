// SPDX-License-Identifier: MPL-2.0

// Package snapshot keeps snapshots of etcd in a directory. A snapshot is verified and complete or does not exist,
// and only its owner can read it.
package snapshot

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

const (
	// A snapshot has every secret of its cluster.
	directoryMode = 0o700
	fileMode      = 0o600

	// partialSuffix marks a file that is being written. Its name starts with a dot, so that patterns such as *.db
	// do not match it.
	partialSuffix  = ".partial"
	checksumSuffix = ".sha256"

	// maxNumber is how many snapshots may have the same name and second.
	maxNumber = 100
)

// Store keeps snapshots in a directory.
type Store struct{ directory string }

// New returns the store in a directory, which need not exist yet. A relative path is relative to the working
// directory.
func New(directory string) *Store { return &Store{directory: directory} }

// Save implements [cluster.SnapshotStore]. The file is <name>-<UTC time>.db, in which characters of name other than
// letters, digits, dots, underscores and hyphens are replaced. If that file exists, it is kept, and a number is
// appended to the new name. The checksum is in a file beside it, in the format of sha256sum. Both files appear once
// they are complete and on disk. Errors of the stream are returned unchanged; others wrap cluster.ErrIncomplete if
// the data is not a whole snapshot, and cluster.ErrRefused if it cannot be kept.
func (s *Store) Save(
	ctx context.Context, name string, taken time.Time, stream func(context.Context, io.Writer) error,
) (cluster.EtcdSnapshot, error) {
	directory, err := s.absolute()
	if err != nil {
		return cluster.EtcdSnapshot{}, err
	}

	ancestor, err := nearest(directory)
	if err != nil {
		return cluster.EtcdSnapshot{}, refused("unable to keep snapshots of etcd in "+directory, err)
	}

	removeLeftovers(directory, name, taken)

	saved, err := save(ctx, directory, baseName(name, taken), stream)
	if err != nil {
		removeEmpty(directory, ancestor)

		return cluster.EtcdSnapshot{}, err
	}

	saved.Taken = taken

	return saved, nil
}

func save(
	ctx context.Context, directory, base string, stream func(context.Context, io.Writer) error,
) (cluster.EtcdSnapshot, error) {
	file, target, err := create(directory, base)
	if err != nil {
		return cluster.EtcdSnapshot{}, err
	}

	verifier := newVerifier(ctx, file)

	if err := fill(ctx, file, verifier, stream); err != nil {
		return cluster.EtcdSnapshot{}, errors.Join(err, discard(file.Name()))
	}

	saved := cluster.EtcdSnapshot{Path: target, Size: verifier.size, SHA256: hex.EncodeToString(verifier.whole.Sum(nil))}

	if err := publish(file.Name(), saved); err != nil {
		return cluster.EtcdSnapshot{}, err
	}

	return saved, nil
}

func (s *Store) absolute() (string, error) {
	if s.directory == "" {
		return "", refused("unable to keep snapshots of etcd", errors.New("no directory is given"))
	}

	directory, err := filepath.Abs(s.directory)
	if err != nil {
		return "", refused("unable to find the directory "+s.directory, err)
	}

	return directory, nil
}

// create creates the directory, and in it the file to write to. Another call that fails may remove the directory in
// between.
func create(directory, base string) (file *os.File, target string, err error) {
	const attempts = 10

	for range attempts {
		if failed := os.MkdirAll(directory, directoryMode); failed != nil {
			err = refused("unable to create the directory "+directory, failed)

			// The directory existed for a moment and was removed; a file in its place is another error.
			if errors.Is(failed, os.ErrExist) {
				continue
			}

			return nil, "", err
		}

		file, target, err = reserve(directory, base)
		if !errors.Is(err, os.ErrNotExist) {
			break
		}
	}

	return file, target, err
}

// reserve creates the file to write to and returns its later name. The partial file also reserves the later name:
// it is renamed in one step, so one of the two exists as long as the name is taken.
func reserve(directory, base string) (file *os.File, target string, err error) {
	for number := 1; number <= maxNumber; number++ {
		name := base
		if number > 1 {
			name = fmt.Sprintf("%s-%d", base, number)
		}

		target = filepath.Join(directory, name+".db")
		partial := partialOf(target)

		file, err = os.OpenFile(partial, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
		if errors.Is(err, os.ErrExist) {
			continue
		}

		if err != nil {
			return nil, "", refused("unable to create a file in "+directory, err)
		}

		if !exists(target) && !exists(target+checksumSuffix) {
			return file, target, nil
		}

		if err := errors.Join(file.Close(), discard(partial)); err != nil {
			return nil, "", err
		}
	}

	return nil, "", refused("unable to create a file in "+directory, fmt.Errorf("%s.db and %d others of that time exist", base, maxNumber-1))
}

// fill writes the stream to the file, verifies it and closes the file.
func fill(ctx context.Context, file *os.File, verifier *verifier, stream func(context.Context, io.Writer) error) error {
	err := stream(ctx, verifier)

	switch {
	case verifier.failure != nil:
		err = verifier.failure
	case err == nil && ctx.Err() != nil:
		// The data of a cancelled stream may end as if it were complete.
		err = cluster.Ended(ctx)
	case err == nil:
		err = verifier.verify()
	}

	if err == nil {
		if failed := file.Sync(); failed != nil {
			err = refused("unable to write "+file.Name(), failed)
		}
	}

	if failed := file.Close(); failed != nil && err == nil {
		err = refused("unable to write "+file.Name(), failed)
	}

	return err
}

// publish gives a finished file its name, after writing its checksum: a snapshot never exists without one. If
// anything fails, neither is kept.
func publish(partial string, saved cluster.EtcdSnapshot) error {
	checksum := saved.Path + checksumSuffix

	err := writeChecksum(checksum, saved)
	if err != nil {
		return errors.Join(err, discard(partial))
	}

	if err := os.Rename(partial, saved.Path); err != nil {
		return errors.Join(refused("unable to name "+saved.Path, err), discard(checksum), discard(partial))
	}

	if err := syncDirectory(filepath.Dir(saved.Path)); err != nil {
		return errors.Join(refused("unable to write the directory "+filepath.Dir(saved.Path), err), discard(saved.Path), discard(checksum))
	}

	return nil
}

// writeChecksum writes the checksum for `sha256sum -c` in the same directory.
func writeChecksum(path string, saved cluster.EtcdSnapshot) error {
	partial := partialOf(path)

	file, err := os.OpenFile(partial, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return refused("unable to create "+partial, err)
	}

	_, err = fmt.Fprintf(file, "%s  %s\n", saved.SHA256, filepath.Base(saved.Path))
	if err == nil {
		err = file.Sync()
	}

	if failed := file.Close(); err == nil {
		err = failed
	}

	if err == nil {
		err = os.Rename(partial, path)
	}

	if err != nil {
		return errors.Join(refused("unable to write "+path, err), discard(partial))
	}

	return nil
}

func partialOf(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+partialSuffix)
}

// discard removes a file that must not stay behind; if it does not exist, that is no error.
func discard(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return refused("unable to remove "+path, err)
	}

	return nil
}
