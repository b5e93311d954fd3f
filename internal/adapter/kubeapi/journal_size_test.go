// SPDX-License-Identifier: MPL-2.0

package kubeapi_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/kubeapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// TestAWriteOfTheJournalCostsWhatChanged: the writes of one upgrade take the same bytes
// whether few or 99 other nodes are on their way and as many are remembered as may be.
func TestAWriteOfTheJournalCostsWhatChanged(t *testing.T) {
	_, other := live(t)
	few, fewSize := upgradeTraffic(t, other, 2, 20)

	forget(t, other)

	many, manySize := upgradeTraffic(t, other, 98, 255)

	forget(t, other)

	t.Logf("2 others: %d bytes for the writes of an upgrade, %d in the object; 98 others: %d, %d", few, fewSize, many, manySize)

	if many > few*3/2 {
		t.Errorf("the writes of an upgrade beside 98 others take %d bytes, beside 2 others %d", many, few)
	}

	// All annotations of an object may have 256 KiB, and etcd keeps each version.
	if most := 128 << 10; manySize > most {
		t.Errorf("the journal has %d bytes, want %d at most", manySize, most)
	}
}

// upgradeTraffic are the bytes that the writes of one upgrade take, with their answers,
// where others are on their way and some are confirmed; and the size of the object in
// the end.
func upgradeTraffic(t *testing.T, other kubernetes.Interface, others, confirmed int) (traffic int64, size int) {
	t.Helper()

	var total atomic.Int64

	api := countedClient(t, &total)

	var journal cluster.Journal

	for number := range confirmed {
		journal = journal.WithConfirmed(machineID(1000+number), upgradeOf(1000+number, ""), nil)
	}

	for number := range others {
		journal = journal.With(machineID(number), upgradeOf(number, cluster.PhaseInstalled))
	}

	journal, err := api.WriteJournal(t.Context(), journal)
	if err != nil {
		t.Fatal(err)
	}

	before := total.Load()
	key := machineID(500)

	for _, phase := range []cluster.Phase{cluster.PhaseIntent, cluster.PhaseInstalled, cluster.PhaseRebooting, ""} {
		one := upgradeOf(500, phase)
		if phase != "" {
			journal = journal.With(key, one)
		} else {
			journal = journal.WithConfirmed(key, one, nil)
		}

		if journal, err = api.WriteJournal(t.Context(), journal); err != nil {
			t.Fatal(err)
		}
	}

	traffic = total.Load() - before

	read, err := api.Journal(t.Context())
	if err != nil || !maps.Equal(read.Entries, journal.Entries) || !maps.Equal(read.Confirmed, journal.Confirmed) || read.ResourceVersion != journal.ResourceVersion {
		t.Errorf("wrote %d entries and %d confirmed ones, read %d and %d, %v",
			len(journal.Entries), len(journal.Confirmed), len(read.Entries), len(read.Confirmed), err)
	}

	object, err := other.CoreV1().ConfigMaps(kubeapi.Namespace).Get(t.Context(), kubeapi.JournalName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	return traffic, object.Size()
}

// countedClient is a client of the real API server that adds up what goes over its
// connections, in bytes.
func countedClient(t *testing.T, total *atomic.Int64) *kubeapi.Client {
	t.Helper()

	kubeconfig, err := os.ReadFile(suite.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}

	client, err := kubeapi.New(kubeconfig, "", kubeapi.Options{
		UserAgent: "terraform-provider-talosupgrade/test",
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			connection, err := (&net.Dialer{}).DialContext(ctx, network, address)

			return &countedConnection{connection, total}, err
		},
	})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(client.Close)

	return client
}

type countedConnection struct {
	net.Conn

	total *atomic.Int64
}

func (c *countedConnection) Read(into []byte) (int, error) {
	n, err := c.Conn.Read(into)
	c.total.Add(int64(n))

	return n, err
}

func (c *countedConnection) Write(from []byte) (int, error) {
	n, err := c.Conn.Write(from)
	c.total.Add(int64(n))

	return n, err
}

// machineID is one as long as those of real machines.
func machineID(number int) string {
	sum := sha256.Sum256([]byte(strconv.Itoa(number)))

	return hex.EncodeToString(sum[:16])
}

// upgradeOf is an entry as long as those of real upgrades.
func upgradeOf(number int, phase cluster.Phase) cluster.Entry {
	one := entry(phase)
	one.Node = fmt.Sprintf("worker-%04d.example.org", number)
	one.Image = "factory.talos.dev/metal-installer/" + strings.Repeat("a", 64) + ":v1.13.4"
	one.Schematic, one.PreviousSchematic = strings.Repeat("a", 64), strings.Repeat("b", 64)
	one.Platform, one.PreviousEtcd, one.Run = "metal", "3.6.5", "run-0123456789abcdef"
	one.BootID, one.Attempt = fmt.Sprintf("2b8f1a64-0000-4000-8000-%012x", number), 1
	one.Written = one.Written.Add(time.Duration(number) * time.Second)

	if phase == "" {
		one.Attempt, one.Cordoned = 0, false
		one.ConfirmedBootID = fmt.Sprintf("3c9f2b75-0000-4000-8000-%012x", number)
	}

	return one
}
