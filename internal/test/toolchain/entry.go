// SPDX-License-Identifier: MPL-2.0

package toolchain

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
)

// lockPoll is how often a process checks whether another one has finished the same build. The lock is advisory, and
// cannot be waited for with a context.
const lockPoll = 200 * time.Millisecond

// entry is a directory of the cache that is either complete or absent.
type entry struct {
	// cache is the directory of the cache, name that of the entry in it.
	cache, name string
}

// path returns where the entry is once it is complete.
func (e entry) path() string { return filepath.Join(e.cache, e.name) }

// ensure returns the directory of the entry. If it is missing, fill makes its content. One process at a time fills
// it; the others wait for it. The directory gets its name only after fill has returned without an error.
func (e entry) ensure(ctx context.Context, progress io.Writer, fill func(ctx context.Context, dir string) error) (string, error) {
	if e.complete() {
		return e.path(), nil
	}

	unlock, err := lock(ctx, e.path()+".lock", e.name, progress)
	if err != nil {
		return "", err
	}
	defer unlock()

	if e.complete() {
		return e.path(), nil
	}

	staging := e.path() + ".partial"

	// The process that left this behind is dead, or it would hold the lock.
	if err := os.RemoveAll(staging); err != nil {
		return "", fmt.Errorf("removing what an interrupted run left: %w", err)
	}

	if err := os.MkdirAll(staging, 0o755); err != nil {
		return "", fmt.Errorf("creating %s: %w", staging, err)
	}

	if err := fill(ctx, staging); err != nil {
		return "", errors.Join(err, os.RemoveAll(staging))
	}

	if err := os.Rename(staging, e.path()); err != nil {
		return "", fmt.Errorf("putting %s in its place: %w", e.name, err)
	}

	return e.path(), nil
}

func (e entry) complete() bool {
	info, err := os.Stat(e.path())

	return err == nil && info.IsDir()
}

// lock takes the file lock at path and returns a function that releases it. The lock ends with its process.
func lock(ctx context.Context, path, name string, progress io.Writer) (func(), error) {
	file := flock.New(path)

	locked, err := file.TryLock()
	if err == nil && !locked {
		fmt.Fprintf(progress, "waiting for another process that prepares %s\n", name)

		_, err = file.TryLockContext(ctx, lockPoll)
	}

	if err != nil {
		return nil, fmt.Errorf("locking %s: %w", path, errors.Join(err, file.Close()))
	}

	// The file stays: if it were removed, two processes could lock two files.
	return func() { _ = file.Unlock() }, nil
}

// key returns a short hash of everything that determines the content of an entry.
func key(parts ...[]byte) string {
	hash := sha256.New()

	for _, part := range parts {
		// The length keeps ("ab", "c") apart from ("a", "bc").
		fmt.Fprintf(hash, "%d:", len(part))
		hash.Write(part)
	}

	return hex.EncodeToString(hash.Sum(nil))[:16]
}
