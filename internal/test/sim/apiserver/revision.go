// SPDX-License-Identifier: MPL-2.0

package apiserver

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// object is what has metadata.
type object interface {
	runtime.Object
	metav1.Object
}

// revision is what an API server knows about an object besides its content.
type revision struct {
	uid     types.UID
	created metav1.Time
	version string
	sum     [sha256.Size]byte
}

// revisions are those of all objects that exist, by resource and
// "namespace/name". The cluster changes most of them without telling, so an
// object has a new resource version when it looks different.
type revisions map[string]map[string]*revision

// stamp gives the objects of a resource their UIDs, creation times and resource
// versions, unless they have their own, and forgets those that are gone.
func (r revisions) stamp(resource string, objects []object, now time.Time, next func() string) error {
	known := r[resource]
	present := make(map[string]*revision, len(objects))

	for _, one := range objects {
		text, err := json.Marshal(one)
		if err != nil {
			return err
		}

		key, sum := one.GetNamespace()+"/"+one.GetName(), sha256.Sum256(text)

		standing := known[key]
		if standing == nil || one.GetUID() != "" && one.GetUID() != standing.uid {
			standing = &revision{uid: one.GetUID(), created: metav1.NewTime(now.Truncate(time.Second))}
		}

		if standing.sum != sum {
			standing.sum, standing.version = sum, one.GetResourceVersion()
			if standing.version == "" {
				standing.version = next()
			}
		}

		if standing.uid == "" {
			standing.uid = types.UID(fmt.Sprintf("uid-of-%s-%s-%s", resource, one.GetName(), standing.version))
		}

		one.SetUID(standing.uid)
		one.SetCreationTimestamp(standing.created)
		one.SetResourceVersion(standing.version)

		present[key] = standing
	}

	r[resource] = present

	return nil
}
