// SPDX-License-Identifier: MPL-2.0

package ports

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// Vault keeps snapshots of etcd in memory. It is safe for concurrent use.
type Vault struct {
	mu      sync.Mutex
	saved   []cluster.EtcdSnapshot
	checks  int
	exposed string
	refusal error
}

var _ cluster.SnapshotStore = (*Vault)(nil)

// NewVault returns an empty vault.
func NewVault() *Vault { return &Vault{} }

// Refuse makes Check and Save fail from now on; nil undoes that.
func (v *Vault) Refuse(refusal error) {
	v.mu.Lock()
	defer v.mu.Unlock()

	v.refusal = refusal
}

// Expose sets what Check returns from now on about who else could read the snapshots.
func (v *Vault) Expose(exposed string) {
	v.mu.Lock()
	defer v.mu.Unlock()

	v.exposed = exposed
}

// Saved returns the snapshots, in order.
func (v *Vault) Saved() []cluster.EtcdSnapshot {
	v.mu.Lock()
	defer v.mu.Unlock()

	return slices.Clone(v.saved)
}

// Checks returns how often Check was called.
func (v *Vault) Checks() int {
	v.mu.Lock()
	defer v.mu.Unlock()

	return v.checks
}

// Check implements [cluster.SnapshotStore].
func (v *Vault) Check(ctx context.Context) (exposed string, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()

	v.checks++

	switch {
	case ctx.Err() != nil:
		return "", interrupted(ctx, false)
	case v.refusal != nil:
		return "", fmt.Errorf("unable to save snapshots: %w", v.refusal)
	default:
		return v.exposed, nil
	}
}

// Save implements [cluster.SnapshotStore].
func (v *Vault) Save(
	ctx context.Context, name string, taken time.Time, stream func(context.Context, io.Writer) error,
) (cluster.EtcdSnapshot, error) {
	if err := v.refused(); err != nil {
		return cluster.EtcdSnapshot{}, err
	}

	var content bytes.Buffer
	if err := stream(ctx, &content); err != nil {
		return cluster.EtcdSnapshot{}, err
	}

	if err := verify(content.Bytes()); err != nil {
		return cluster.EtcdSnapshot{}, fmt.Errorf("unable to save the snapshot of etcd: %w", err)
	}

	sum := sha256.Sum256(content.Bytes())
	snapshot := cluster.EtcdSnapshot{
		Path: "/vault/" + name + "-" + taken.UTC().Format("20060102T150405Z") + ".db",
		Size: int64(content.Len()), SHA256: hex.EncodeToString(sum[:]), Taken: taken,
	}

	v.mu.Lock()
	defer v.mu.Unlock()

	v.saved = append(v.saved, snapshot)

	return snapshot, nil
}

func (v *Vault) refused() error {
	v.mu.Lock()
	defer v.mu.Unlock()

	if v.refusal != nil {
		return fmt.Errorf("unable to save the snapshot of etcd: %w", v.refusal)
	}

	return nil
}

// page is a number of bytes of which the length of an etcd database is a multiple.
const page = 512

// verify checks that the content is a database followed by its checksum.
func verify(content []byte) error {
	split := len(content) - sha256.Size
	if split <= 0 || split%page != 0 {
		return fmt.Errorf("%w: %d bytes are no database with its checksum", cluster.ErrIncomplete, len(content))
	}

	if sum := sha256.Sum256(content[:split]); !bytes.Equal(sum[:], content[split:]) {
		return fmt.Errorf("%w: the checksum does not fit", cluster.ErrIncomplete)
	}

	return nil
}
