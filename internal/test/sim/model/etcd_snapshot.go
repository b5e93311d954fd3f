// SPDX-License-Identifier: MPL-2.0

package model

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strconv"
)

// The database of etcd is one of bbolt: pages of 4 KiB, in which buckets are trees of keys. The first two pages say
// where the others are.
const (
	boltPage     = 4 << 10
	boltHeader   = 16 // of a page, of an element in it, and of a bucket
	boltBranch   = 0x01
	boltLeaf     = 0x02
	boltMeta     = 0x04
	boltFreelist = 0x10
	boltBucket   = 0x01 // an element that is a bucket
	boltMagic    = 0xED0CDAED
	boltVersion  = 2

	// The numbers of pages: everything from keysPage on belongs to the bucket of keys, in leaves of leafPages
	// pages.
	freelistPage, rootPage, keysPage = 2, 3, 4
	leafPages                        = 12
)

// boltItem is an element of a page: a key with its value, or with the page that is
// below it.
type boltItem struct {
	key, value []byte
	bucket     bool
	below      uint64
}

// boltBytes returns a page, followed by as many more as its content needs.
func boltBytes(id uint64, flags uint16, items []boltItem) []byte {
	page := boltContent(id, flags, items)
	page = append(page, make([]byte, (boltPage-len(page)%boltPage)%boltPage)...)
	binary.LittleEndian.PutUint32(page[12:], uint32(len(page)/boltPage-1)) //nolint:gosec // a few pages

	return page
}

// boltContent returns a page as long as its content. The elements come first, and each has the distance from itself
// to its key and value.
func boltContent(id uint64, flags uint16, items []boltItem) []byte {
	order := binary.LittleEndian
	page := order.AppendUint64(nil, id)
	page = order.AppendUint16(page, flags)
	page = order.AppendUint16(page, uint16(len(items))) //nolint:gosec // some hundreds
	page = order.AppendUint32(page, 0)

	distance := len(items) * boltHeader

	for _, item := range items {
		if flags == boltLeaf {
			page = order.AppendUint32(page, map[bool]uint32{true: boltBucket}[item.bucket])
		}

		page = order.AppendUint32(page, uint32(distance))      //nolint:gosec // some pages
		page = order.AppendUint32(page, uint32(len(item.key))) //nolint:gosec // a name

		if flags == boltLeaf {
			page = order.AppendUint32(page, uint32(len(item.value))) //nolint:gosec // some pages
		} else {
			page = order.AppendUint64(page, item.below)
		}

		distance += len(item.key) + len(item.value) - boltHeader
	}

	for _, item := range items {
		page = append(append(page, item.key...), item.value...)
	}

	return page
}

// smallBucket returns a bucket that is kept in the page of its parent.
func smallBucket(name string, items ...boltItem) boltItem {
	return boltItem{key: []byte(name), bucket: true, value: append(make([]byte, boltHeader), boltContent(0, boltLeaf, items)...)}
}

// bigBucket returns a bucket with a tree of its own.
func bigBucket(name string, root uint64) boltItem {
	return boltItem{key: []byte(name), bucket: true, value: append(binary.LittleEndian.AppendUint64(nil, root), make([]byte, 8)...)}
}

// boltMetaPage returns one of the first two pages; the one with the later transaction counts.
func boltMetaPage(id uint64, pages int, transaction uint64) []byte {
	order := binary.LittleEndian

	meta := order.AppendUint32(nil, boltMagic)
	meta = order.AppendUint32(meta, boltVersion)
	meta = order.AppendUint32(meta, boltPage)
	meta = order.AppendUint32(meta, 0)

	for _, field := range []uint64{rootPage, 0, freelistPage, uint64(pages), transaction} { //nolint:gosec // some hundreds
		meta = order.AppendUint64(meta, field)
	}

	sum := fnv.New64a()
	_, _ = sum.Write(meta)

	page := boltBytes(id, boltMeta, nil)
	copy(page[boltHeader:], order.AppendUint64(meta, sum.Sum64()))

	return page
}

// database returns what a member stores, in [SnapshotSize] bytes. The lock is held.
func (w *World) database(n *node) []byte {
	applied, agreed := n.etcd.applied(w.etcd, w.clock.Now()), etcdRelease{minor: w.etcd.minor}.String()

	meta := []boltItem{
		{key: []byte("confState"), value: w.voters()},
		{key: []byte("consistent_index"), value: binary.BigEndian.AppendUint64(nil, applied)},
		{key: []byte("term"), value: binary.BigEndian.AppendUint64(nil, w.etcd.term)},
	}
	if stored := w.storageVersion(n); stored != "" {
		meta = slices.Insert(meta, 2, boltItem{key: []byte("storageVersion"), value: []byte(stored)})
	}

	leaves, branch := w.keyLeaves(n, applied)
	buckets := []boltItem{
		smallBucket("alarm"),
		smallBucket("auth", boltItem{key: []byte("authRevision"), value: binary.BigEndian.AppendUint64(nil, 1)}),
		smallBucket("authRoles"),
		smallBucket("authUsers"),
		smallBucket("cluster", boltItem{key: []byte("clusterVersion"), value: []byte(agreed)}),
		bigBucket("key", keysPage),
		smallBucket("lease"),
		smallBucket("members", w.memberItems()...),
		smallBucket("members_removed"),
		smallBucket("meta", meta...),
	}

	const pages = SnapshotSize / boltPage

	return bytes.Join([][]byte{
		boltMetaPage(0, pages, applied), boltMetaPage(1, pages, applied-1),
		boltBytes(freelistPage, boltFreelist, nil), boltBytes(rootPage, boltLeaf, buckets), branch, leaves,
	}, nil)
}

// voters returns the members as the log of etcd has them.
func (w *World) voters() []byte {
	var state struct {
		Voters   []uint64 `json:"voters"`
		Learners []uint64 `json:"learners,omitempty"`
		Leaving  bool     `json:"auto_leave"`
	}

	for _, n := range w.members() {
		if n.etcd.votes() {
			state.Voters = append(state.Voters, n.etcd.id)
		} else {
			state.Learners = append(state.Learners, n.etcd.id)
		}
	}

	text, _ := json.Marshal(state) //nolint:errchkjson // numbers

	return text
}

// memberItems returns the members by their IDs.
func (w *World) memberItems() []boltItem {
	var items []boltItem

	for _, n := range w.members() {
		text, _ := json.Marshal(map[string]any{ //nolint:errchkjson // numbers and texts
			"id": n.etcd.id, "name": n.name, "isLearner": !n.etcd.votes(),
			"peerURLs": []string{"https://" + hostPort(n.address, "2380")}, "clientURLs": []string{"https://" + hostPort(n.address, "2379")},
		})
		items = append(items, boltItem{key: strconv.AppendUint(nil, n.etcd.id, 16), value: text})
	}

	slices.SortFunc(items, func(a, b boltItem) int { return bytes.Compare(a.key, b.key) })

	return items
}

// keyLeaves returns the keys of Kubernetes by their revisions: the API servers, and objects that fill the database.
func (w *World) keyLeaves(n *node, newest uint64) (leaves, branch []byte) {
	const pages = SnapshotSize/boltPage - keysPage - 1
	const count = (pages + leafPages - 1) / leafPages

	content, members := rand.NewChaCha8(draw(w.options.Seed, "etcd snapshot", n.name)), w.members()
	revision := newest - uint64(count+len(members))

	var index []boltItem

	for leaf := range count {
		var items []boltItem

		if leaf == 0 {
			for _, member := range members {
				revision++
				items = append(items, keyItem(revision, "/registry/masterleases/"+member.address, []byte("k8s\x00"+member.name)))
			}
		}

		revision++
		key := "/registry/configmaps/default/" + strconv.Itoa(leaf)
		// The object fills the pages of its leaf. The length of an empty value takes two bytes less.
		least := boltContent(0, boltLeaf, append(slices.Clone(items), keyItem(revision, key, nil)))
		value := make([]byte, min(leafPages, pages-leaf*leafPages)*boltPage-len(least)-2)
		_, _ = content.Read(value)

		items = append(items, keyItem(revision, key, value))
		id := uint64(keysPage + 1 + leaf*leafPages) //nolint:gosec // some hundreds
		index = append(index, boltItem{key: items[0].key, below: id})
		leaves = append(leaves, boltBytes(id, boltLeaf, items)...)
	}

	return leaves, boltBytes(keysPage, boltBranch, index)
}

// keyItem returns a key of etcd: its revision, and as its value what was written then, as mvccpb.KeyValue.
func keyItem(revision uint64, key string, value []byte) boltItem {
	at := append(binary.BigEndian.AppendUint64(nil, revision), '_')

	var written []byte

	for number, field := range []any{[]byte(key), revision, revision, uint64(1), value} {
		switch content := field.(type) {
		case uint64:
			written = binary.AppendUvarint(append(written, byte(number+1)<<3), content)
		case []byte:
			written = binary.AppendUvarint(append(written, byte(number+1)<<3|2), uint64(len(content)))
			written = append(written, content...)
		}
	}

	return boltItem{key: binary.BigEndian.AppendUint64(at, 0), value: written}
}
