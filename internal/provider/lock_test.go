// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"errors"
	"testing"
)

func TestLockKeepsOperationsOnOneClusterApart(t *testing.T) {
	locks := newLockTable()

	release, err := locks.acquire(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}

	other, err := locks.acquire(t.Context(), "b")
	if err != nil {
		t.Fatal("another cluster is locked as well")
	}

	other()

	cause := errors.New("enough")
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(cause)

	if _, err := locks.acquire(ended, "a"); !errors.Is(err, cause) {
		t.Fatalf("got %v while the lock is held", err)
	}

	release()

	again, err := locks.acquire(t.Context(), "a")
	if err != nil {
		t.Fatalf("got %v after the release", err)
	}

	again()
}
