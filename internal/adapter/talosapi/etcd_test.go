// SPDX-License-Identifier: MPL-2.0

package talosapi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/snapshot"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/wire"
)

const snapshotCall = "/machine.MachineService/EtcdSnapshot"

func TestSnapshot_IsSavedWhole(t *testing.T) {
	for _, suffix := range []string{"", wire.ContextOperator, wire.ContextBackup} {
		inBubble(t, model.Options{}, func(r *rig) {
			c := r.client(suffix)

			saved, err := snapshot.New(r.TempDir()).Save(r.Context(), "prod", time.Now(), func(ctx context.Context, to io.Writer) error {
				return c.EtcdSnapshot(ctx, cp1, to)
			})
			if err != nil || saved.Size != model.SnapshotSize+32 {
				r.Errorf("%q: saved %+v, %v", suffix, saved, err)
			}

			if got := r.log.calls("cp-1")[snapshotCall]; got != 1 {
				r.Errorf("%q: %d calls, want one", suffix, got)
			}
		})
	}
}

// A node that ends its stream early reports no error: the store has to notice.
func TestSnapshot_IsNotAskedForAgainWhenItFails(t *testing.T) {
	for effect, test := range map[model.Effect]struct {
		want    error
		half    bool
		anyhow  error
		minutes int
	}{
		model.EffectFail:           {want: cluster.ErrUnreachable, anyhow: cluster.ErrUnreachable},
		model.EffectConnectionLost: {want: cluster.ErrUnreachable, half: true, anyhow: cluster.ErrUnreachable},
		model.EffectStall:          {want: cluster.ErrUnreachable, half: true, anyhow: cluster.ErrUnreachable, minutes: 1},
		model.EffectCut:            {half: true, anyhow: cluster.ErrIncomplete},
		model.EffectCorrupt:        {anyhow: cluster.ErrIncomplete},
	} {
		t.Run(string(effect), func(t *testing.T) {
			inBubble(t, model.Options{}, func(r *rig) {
				c := r.client("")
				r.world.SetFaults([]model.Fault{struck("cp-1", model.StepEtcdSnapshot, effect)})

				var (
					taken bytes.Buffer
					err   error
				)

				start := time.Now()

				_, failed := snapshot.New(r.TempDir()).Save(r.Context(), "prod", start, func(ctx context.Context, to io.Writer) error {
					err = c.EtcdSnapshot(ctx, cp1, io.MultiWriter(&taken, to))

					return err
				})

				if !errors.Is(err, test.want) || !errors.Is(failed, test.anyhow) || !cluster.Heals(failed) {
					r.Errorf("%v, and when saved %v; want %v and %v", err, failed, test.want, test.anyhow)
				}

				if got := taken.Len(); test.half && got != model.SnapshotSize/2 {
					r.Errorf("%d bytes came, want one half", got)
				}

				if got := r.log.calls("cp-1")[snapshotCall]; got != 1 {
					r.Errorf("%d calls, want one", got)
				}

				if took := time.Since(start); took > time.Duration(test.minutes)*time.Minute+10*time.Second {
					r.Errorf("it took %s", took)
				}

				if test.minutes > 0 && !strings.Contains(err.Error(), fmt.Sprintf("no data came for 1m0s, after %d bytes", taken.Len())) {
					r.Errorf("%v, want it to say how far it came", err)
				}
			})
		})
	}
}

func TestSnapshot_HasTheErrorsOfOtherCalls(t *testing.T) {
	for name, test := range map[string]struct {
		context, address string
		want             error
	}{
		"a reader":     {wire.ContextReader, cp0, cluster.ErrDenied},
		"a worker":     {"", worker0, cluster.ErrUnsupported},
		"nobody there": {wire.ContextDead, cp0, cluster.ErrUnreachable},
	} {
		inBubble(t, model.Options{}, func(r *rig) {
			err := r.client(test.context).EtcdSnapshot(r.Context(), test.address, io.Discard)
			if !errors.Is(err, test.want) || !strings.Contains(err.Error(), "take a snapshot of etcd on node "+test.address) {
				r.Errorf("%s: %v, want %v", name, err, test.want)
			}
		})
	}
}

// brokenDisk takes some bytes and then fails.
type brokenDisk struct{ taken int }

var errDisk = errors.New("no space left on device")

func (d *brokenDisk) Write(data []byte) (int, error) {
	if d.taken > 1<<20 {
		return 0, errDisk
	}

	d.taken += len(data)

	return len(data), nil
}

func TestSnapshot_OwnFullDiskIsNoFaultOfTheNode(t *testing.T) {
	inBubble(t, model.Options{}, func(r *rig) {
		err := r.client("").EtcdSnapshot(r.Context(), cp1, &brokenDisk{})
		if !errors.Is(err, errDisk) || errors.Is(err, cluster.ErrUnreachable) || strings.Contains(err.Error(), "endpoint") {
			r.Errorf("%v, want the error of the disk", err)
		}
	})
}

// If part of a snapshot has arrived, no second one follows it.
func TestSnapshot_IsNotBegunAgainThroughAnotherEndpoint(t *testing.T) {
	inBubble(t, model.Options{}, func(r *rig) {
		through := newCable(cp0 + ":")
		c := r.clientOver(through)

		// The call goes through cp-0, which answers first while it is up.
		dial := through.dial
		through.dial = func(ctx context.Context, address string) (net.Conn, error) {
			if !strings.HasPrefix(address, through.prefix) {
				time.Sleep(time.Second)
			}

			return dial(ctx, address)
		}

		r.machine(c, cp1)
		time.Sleep(2 * time.Second)

		var taken cutter

		taken.at, taken.cut = 1<<20, through.goSilent

		err := c.EtcdSnapshot(r.Context(), cp1, &taken)
		if !errors.Is(err, cluster.ErrUnreachable) {
			r.Errorf("%v, want the node to be unreachable", err)
		}

		if taken.Len() > 2*taken.at {
			r.Errorf("%d bytes came after the cut", taken.Len()-taken.at)
		}
	})
}

// cutter cuts the connection after the given number of bytes.
type cutter struct {
	bytes.Buffer

	at  int
	cut func()
}

func (c *cutter) Write(data []byte) (int, error) {
	if c.Len() < c.at && c.Len()+len(data) >= c.at {
		c.cut()
	}

	return c.Buffer.Write(data)
}
