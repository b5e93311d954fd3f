// SPDX-License-Identifier: MPL-2.0

package kubeapi

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// ErrJournal is wrapped by errors about a journal that contains something that is not an entry.
var ErrJournal = errors.New("journal damaged")

// holderKey is the key of the journal for who took the lease last. It is not named after a machine.
const holderKey = "holder"

// formatKey is the key of the journal for the version of its format. It is not named after a machine.
const formatKey = "format"

// journalFormat is the format that is written, in which entries are named after machine IDs. In format 1, whose
// journals have no formatKey, they are named after the UUIDs of the hardware. A version of the provider that does
// not know the format cannot tell which machines have an unfinished install.
const journalFormat = 2

// checkFormat returns an error if another version of the provider wrote a format that this one cannot read.
func checkFormat(object *corev1.ConfigMap) error {
	text, told := object.Data[formatKey]
	if !told {
		return nil
	}

	if format, err := strconv.Atoi(text); err == nil && format >= 1 && format <= journalFormat {
		return nil
	}

	return fmt.Errorf("%w: ConfigMap %s/%s has the format %q, and this version of the provider knows formats 1 to %d, so that it cannot tell which nodes have an unfinished upgrade. "+
		"Apply with the version of the provider that wrote it, or with a newer one", ErrJournal, Namespace, JournalName, text, journalFormat)
}

// Journal reads the journal; empty if there is none. An entry that cannot be read is an error, because its node may
// have an unfinished install.
func (c *Client) Journal(ctx context.Context) (cluster.Journal, error) {
	object, err := c.readConfigMap(ctx, JournalName)
	if err != nil || object == nil {
		return cluster.Journal{}, err
	}

	if err := checkFormat(object); err != nil {
		return cluster.Journal{}, err
	}

	journal := cluster.Journal{Holder: object.Data[holderKey], Entries: map[string]cluster.Entry{}, ResourceVersion: object.ResourceVersion}

	journal.Manifests, err = manifestsDue(object)
	if err != nil {
		return cluster.Journal{}, fmt.Errorf("%w: key %q of ConfigMap %s/%s is not a record of a sync that is due: %w. "+
			"Make sure that the bootstrap manifests are in sync, then remove the key: kubectl -n %s edit configmap %s",
			ErrJournal, manifestsKey, Namespace, JournalName, err, Namespace, JournalName)
	}

	journal.Snapshot, err = snapshotTaken(object)
	if err != nil {
		return cluster.Journal{}, fmt.Errorf("%w: key %q of ConfigMap %s/%s is not a record of a snapshot of etcd: %w. "+
			"Nothing but the path of the last snapshot is lost with it. Remove the key: kubectl -n %s edit configmap %s",
			ErrJournal, snapshotKey, Namespace, JournalName, err, Namespace, JournalName)
	}

	journal.Confirmed = confirmedIn(object)

	for key, text := range entriesOf(object) {
		entry, err := decodeEntry(text)
		if err != nil {
			return cluster.Journal{}, fmt.Errorf("%w: key %q of ConfigMap %s/%s is not an entry: %w. "+
				"If the machine with this ID has not been rebooted since the last upgrade, drain and reboot it first: without a boot in between, a second install "+
				"destroys the system that it can return to. Then remove the key: kubectl -n %s edit configmap %s", ErrJournal, key, Namespace, JournalName, err, Namespace, JournalName)
		}

		journal.Entries[key] = entry
	}

	c.journalRead.Store(&journal)

	return journal, nil
}

// WriteJournal creates the journal if its ResourceVersion is empty and updates it otherwise. What is known to be
// stored at that version is not sent again: with a hundred nodes under way, a journal is a hundred times as large
// as a change of one of them.
func (c *Client) WriteJournal(ctx context.Context, journal cluster.Journal) (cluster.Journal, error) {
	what := "write the journal " + Namespace + "/" + JournalName

	request, err := c.journalRequest(journal)
	if err != nil {
		return cluster.Journal{}, fmt.Errorf("unable to %s: %w", what, err)
	}

	resourceVersion, err := changeForVersion(ctx, what, request)
	if err != nil {
		return cluster.Journal{}, vanished(journal.ResourceVersion, err)
	}

	journal.ResourceVersion = resourceVersion
	c.journalWritten.Store(&journal)

	return journal, nil
}

// journalRequest returns the request that writes the journal: a POST if there is none yet, a patch if this client
// knows what is stored, and a PUT otherwise. The API server refuses the last two if the stored resource version is
// another one.
func (c *Client) journalRequest(journal cluster.Journal) (*rest.Request, error) {
	if journal.ResourceVersion == "" {
		object, err := c.journalObject(journal)

		return c.core.Post().Namespace(Namespace).Resource("configmaps").Body(object), err
	}

	for _, known := range []*cluster.Journal{c.journalWritten.Load(), c.journalRead.Load()} {
		if known != nil && known.ResourceVersion == journal.ResourceVersion {
			patch, err := c.journalPatch(*known, journal)

			return c.core.Patch(types.MergePatchType).Namespace(Namespace).Resource("configmaps").Name(JournalName).Body(patch), err
		}
	}

	object, err := c.journalObject(journal)

	return c.core.Put().Namespace(Namespace).Resource("configmaps").Name(JournalName).Body(object), err
}

// journalObject is the whole journal as it is stored.
func (c *Client) journalObject(journal cluster.Journal) (*corev1.ConfigMap, error) {
	data, err := journalRecords(journal)
	if err != nil {
		return nil, err
	}

	for key, entry := range journal.Entries {
		if data[key], err = encodeEntry(entry); err != nil {
			return nil, err
		}
	}

	object := &corev1.ConfigMap{ObjectMeta: c.metadata(JournalName, journal.ResourceVersion), Data: data}

	return object, recordConfirmed(object, journal.Confirmed)
}

// journalPatch returns a JSON merge patch from one journal to another, which the API server refuses if the first
// one is no longer stored. It always includes the holder and the metadata of the writer, whoever wrote before.
func (c *Client) journalPatch(before, after cluster.Journal) ([]byte, error) {
	records, err := journalRecords(after)
	if err != nil {
		return nil, err
	}

	data := map[string]*string{holderKey: nil, manifestsKey: nil, snapshotKey: nil}
	for key, text := range records {
		data[key] = &text
	}

	for key := range before.Entries {
		if _, stays := after.Entries[key]; !stays {
			data[key] = nil
		}
	}

	for key, entry := range after.Entries {
		if stands, there := before.Entries[key]; there && stands == entry {
			continue
		}

		text, err := encodeEntry(entry)
		if err != nil {
			return nil, err
		}

		data[key] = &text
	}

	annotations, err := confirmedPatch(before.Confirmed, after.Confirmed)
	if err != nil {
		return nil, err
	}

	metadata := c.metadata("", after.ResourceVersion)
	for key, value := range metadata.Annotations {
		annotations[key] = &value
	}

	return json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": metadata.ResourceVersion, "labels": metadata.Labels, "annotations": annotations},
		"data":     data,
	})
}

// journalRecords returns what the journal stores that is not about a machine, by key.
func journalRecords(journal cluster.Journal) (map[string]string, error) {
	data := map[string]string{formatKey: strconv.Itoa(journalFormat)}

	if journal.Holder != "" {
		data[holderKey] = journal.Holder
	}

	return data, errors.Join(recordManifests(data, journal.Manifests), recordSnapshot(data, journal.Snapshot))
}

func (c *Client) readConfigMap(ctx context.Context, name string) (*corev1.ConfigMap, error) {
	var object corev1.ConfigMap

	err := read(ctx, "read the ConfigMap "+Namespace+"/"+name,
		c.core.Get().Namespace(Namespace).Resource("configmaps").Name(name), &object)
	if errors.Is(err, cluster.ErrNotFound) {
		return nil, nil
	}

	if err != nil {
		return nil, err
	}

	return &object, nil
}

// journalEntry is an entry as it is stored: the value of the key named after the ID of the machine. Newer versions
// must be able to read the field names; unknown ones are ignored.
type journalEntry struct {
	// Node is the name of the Kubernetes node.
	Node string `json:"node"`
	// Phase is intent, installed, rebooting, fallback, rolling-back or
	// rolled-back.
	Phase cluster.Phase `json:"phase"`
	// Attempt counts from 1.
	Attempt int `json:"attempt"`
	// BootID is the boot before the install; for a fallback, the boot after it.
	BootID string `json:"bootID"`
	// Image is the installer image with its tag.
	Image string `json:"image"`
	// Target and Previous are Talos versions without "v".
	Target            string `json:"target"`
	Previous          string `json:"previous,omitempty"`
	PreviousSchematic string `json:"previousSchematic,omitempty"`
	// Schematic is the schematic that was installed.
	Schematic string `json:"schematic,omitempty"`
	// Extensions are the names of the extensions that ran before, separated by commas.
	Extensions string `json:"extensions,omitempty"`
	// Platform is the platform that the node ran on before.
	Platform string `json:"platform,omitempty"`
	// Told is true once the node has answered that it rolls back.
	Told bool `json:"told,omitempty"`
	// PreviousEtcd is the version of etcd that ran with Previous.
	PreviousEtcd string `json:"previousEtcd,omitempty"`
	// Asked names who asked for the rollback, and Reason is what they wrote.
	Asked  string `json:"asked,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Retry is true if the image may be tried again.
	Retry bool `json:"retry,omitempty"`
	// ConfirmedBootID is the boot in which the upgrade was confirmed.
	ConfirmedBootID string `json:"confirmedBootID,omitempty"`
	// Run names the run that wrote the entry.
	Run string `json:"run"`
	// Cordoned is true if the run set the cordon on the node.
	Cordoned bool `json:"cordoned"`
	// Departed is true if the node was deleted while its upgrade was under way.
	Departed bool `json:"departed,omitempty"`
	// Written is RFC 3339 in UTC.
	Written time.Time `json:"written"`
}

func encodeEntry(entry cluster.Entry) (string, error) {
	text, err := json.Marshal(storedEntry(entry))

	return string(text), err
}

// storedEntry returns an entry in the form in which it is stored.
func storedEntry(entry cluster.Entry) journalEntry {
	stored := journalEntry{
		Node: entry.Node, Phase: entry.Phase, Attempt: entry.Attempt, BootID: entry.BootID, Image: entry.Image,
		PreviousSchematic: entry.PreviousSchematic, PreviousEtcd: entry.PreviousEtcd,
		Schematic: entry.Schematic, Extensions: entry.Extensions, Platform: entry.Platform, Told: entry.Told,
		Asked: entry.Asked, Reason: entry.Reason, Retry: entry.Retry, ConfirmedBootID: entry.ConfirmedBootID,
		Run: entry.Run, Cordoned: entry.Cordoned, Departed: entry.Departed, Written: entry.Written.UTC(),
	}

	if !entry.Target.IsZero() {
		stored.Target = entry.Target.String()
	}

	if !entry.Previous.IsZero() {
		stored.Previous = entry.Previous.String()
	}

	return stored
}

func decodeEntry(text string) (cluster.Entry, error) {
	var stored journalEntry
	if err := json.Unmarshal([]byte(text), &stored); err != nil {
		return cluster.Entry{}, err
	}

	switch stored.Phase {
	case cluster.PhaseIntent, cluster.PhaseInstalled, cluster.PhaseRebooting, cluster.PhaseFallback, cluster.PhaseRollingBack, cluster.PhaseRolledBack:
	default:
		return cluster.Entry{}, fmt.Errorf("unknown phase %q", stored.Phase)
	}

	return stored.entry()
}

// entry decodes a stored entry, whatever its phase.
func (stored journalEntry) entry() (cluster.Entry, error) {
	target, err := optionalVersion(stored.Target)
	if err != nil {
		return cluster.Entry{}, fmt.Errorf("target: %w", err)
	}

	previous, err := optionalVersion(stored.Previous)
	if err != nil {
		return cluster.Entry{}, fmt.Errorf("previous: %w", err)
	}

	return cluster.Entry{
		Node: stored.Node, Phase: stored.Phase, Attempt: stored.Attempt, BootID: stored.BootID, Image: stored.Image,
		Target: target, Previous: previous, PreviousSchematic: stored.PreviousSchematic, PreviousEtcd: stored.PreviousEtcd,
		Schematic: stored.Schematic, Extensions: stored.Extensions, Platform: stored.Platform, Told: stored.Told,
		Asked: stored.Asked, Reason: stored.Reason, Retry: stored.Retry, ConfirmedBootID: stored.ConfirmedBootID,
		Run: stored.Run, Cordoned: stored.Cordoned, Departed: stored.Departed, Written: stored.Written,
	}, nil
}

func optionalVersion(text string) (version.Version, error) {
	if text == "" {
		return version.Version{}, nil
	}

	return version.Parse(text)
}

// manifestsKey is the key of the journal for the record that the bootstrap manifests have to be synced. It is not
// named after a machine.
const manifestsKey = "manifests"

// journalManifests is that record as it is stored.
type journalManifests struct {
	// Run names the run that wrote it.
	Run string `json:"run"`
	// Written is RFC 3339 in UTC.
	Written time.Time `json:"written"`
}

// manifestsDue reads the record; nil if there is none.
func manifestsDue(object *corev1.ConfigMap) (*cluster.ManifestsDue, error) {
	text, ok := object.Data[manifestsKey]
	if !ok {
		return nil, nil
	}

	var stored journalManifests
	if err := json.Unmarshal([]byte(text), &stored); err != nil {
		return nil, err
	}

	if stored.Run == "" {
		return nil, errors.New("it names no run")
	}

	return &cluster.ManifestsDue{Run: stored.Run, Written: stored.Written}, nil
}

// recordManifests adds the record to the data of the journal, unless it is nil.
func recordManifests(data map[string]string, due *cluster.ManifestsDue) error {
	if due == nil {
		return nil
	}

	text, err := json.Marshal(journalManifests{Run: due.Run, Written: due.Written.UTC()})
	if err != nil {
		return err
	}

	data[manifestsKey] = string(text)

	return nil
}

// entriesOf returns the entries of machines, by key.
func entriesOf(object *corev1.ConfigMap) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for key, text := range object.Data {
			switch key {
			case formatKey, holderKey, manifestsKey, snapshotKey:
			default:
				if !yield(key, text) {
					return
				}
			}
		}
	}
}

// snapshotKey is the key of the journal for the record of the last snapshot of etcd. It is not named after a
// machine.
const snapshotKey = "etcd-snapshot"

// journalSnapshot is that record as it is stored. Newer versions must be able to read the field names.
type journalSnapshot struct {
	// Path is where the runner saved the snapshot.
	Path string `json:"path"`
	// Size is in bytes.
	Size int64 `json:"size"`
	// SHA256 is in lower-case hexadecimal digits.
	SHA256 string `json:"sha256"`
	// Taken is RFC 3339 in UTC.
	Taken time.Time `json:"taken"`
	// Talos and Kubernetes are the versions that the cluster was to be upgraded to, without "v"; empty if that half
	// was not managed.
	Talos      string `json:"talos,omitempty"`
	Kubernetes string `json:"kubernetes,omitempty"`
	// InstallerImage is the installer image that was asked for, without a tag; empty if each node keeps its own.
	InstallerImage string `json:"installerImage,omitempty"`
	// Run names the run that took the snapshot.
	Run string `json:"run"`
	// Closed is true once the cluster has reached those versions.
	Closed bool `json:"closed,omitempty"`
}

// snapshotTaken reads the record; nil if there is none.
func snapshotTaken(object *corev1.ConfigMap) (*cluster.EtcdSnapshot, error) {
	text, ok := object.Data[snapshotKey]
	if !ok {
		return nil, nil
	}

	var stored journalSnapshot
	if err := json.Unmarshal([]byte(text), &stored); err != nil {
		return nil, err
	}

	if stored.Path == "" {
		return nil, errors.New("it names no path")
	}

	if sum, err := hex.DecodeString(stored.SHA256); err != nil || len(sum) != 32 {
		return nil, fmt.Errorf("%q is no SHA-256 checksum", stored.SHA256)
	}

	taken := &cluster.EtcdSnapshot{
		Path: stored.Path, Size: stored.Size, SHA256: stored.SHA256, Taken: stored.Taken, Run: stored.Run,
		Target: cluster.Target{InstallerImage: stored.InstallerImage}, Closed: stored.Closed,
	}

	var err error

	if taken.Target.Talos, err = optionalVersion(stored.Talos); err != nil {
		return nil, fmt.Errorf("talos: %w", err)
	}

	if taken.Target.Kubernetes, err = optionalVersion(stored.Kubernetes); err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}

	return taken, nil
}

// recordSnapshot adds the record to the data of the journal, unless it is nil.
func recordSnapshot(data map[string]string, taken *cluster.EtcdSnapshot) error {
	if taken == nil {
		return nil
	}

	text, err := json.Marshal(journalSnapshot{
		Path: taken.Path, Size: taken.Size, SHA256: taken.SHA256, Taken: taken.Taken.UTC(), Run: taken.Run,
		Talos: storedVersion(taken.Target.Talos), Kubernetes: storedVersion(taken.Target.Kubernetes),
		InstallerImage: taken.Target.InstallerImage, Closed: taken.Closed,
	})
	if err != nil {
		return err
	}

	data[snapshotKey] = string(text)

	return nil
}

func storedVersion(of version.Version) string {
	if of.IsZero() {
		return ""
	}

	return of.String()
}
