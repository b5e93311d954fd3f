// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"
	"github.com/hashicorp/terraform-plugin-log/tflog"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/release"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// releasesTimeout bounds how long a source of releases is waited for. An upgrade
// goes on meanwhile.
const releasesTimeout = 10 * time.Second

// nextFunc is the newest release of each half that a cluster which runs these
// versions could be upgraded to in one step; zero where there is none, or none is
// known yet. It returns at once.
type nextFunc func(talos, kubernetes version.Version) (nextTalos, nextKubernetes version.Version)

// next is what is ahead of a cluster that runs the versions, by the releases that
// exist, in ascending order. A zero version that runs is not known: nothing is
// ahead of it, and of Kubernetes nothing either where Talos is not known, which has
// to support it.
func next(talos, kubernetes version.Version, talosReleases, kubernetesReleases []version.Version) (nextTalos, nextKubernetes version.Version) {
	if talos.IsZero() {
		return version.Version{}, version.Version{}
	}

	at := plan.State{Talos: talos, Kubernetes: kubernetes}
	aheadTalos, aheadKubernetes := newReach(standing{lowest: at, highest: at}, talosReleases, kubernetesReleases).next()

	return version.Highest(aheadTalos...), version.Highest(aheadKubernetes...)
}

// outlook knows which releases exist, as far as their sources have answered.
type outlook struct {
	mutex      sync.Mutex
	talos      []version.Version
	kubernetes []version.Version
	// asked are the last answer and what it was given to.
	asked, answer plan.State
	answered      bool
}

// outlook asks for the releases that exist: those that need no network at once, and
// others in the background, which ends with the function that is returned at the
// latest. A source that does not answer knows of none.
func (d releaseDefaults) outlook(ctx context.Context, userAgent string) (known *outlook, end func()) {
	known = &outlook{}
	bounded, cancel := context.WithTimeout(ctx, releasesTimeout)

	var background sync.WaitGroup

	for _, product := range []release.Product{release.Talos, release.Kubernetes} {
		if d.offline(ctx, product) {
			known.learn(bounded, d, product, userAgent)
		} else {
			background.Go(func() { known.learn(bounded, d, product, userAgent) })
		}
	}

	return known, func() {
		cancel()
		background.Wait()
	}
}

// offline tells whether the releases of a product are known without a network.
func (d releaseDefaults) offline(ctx context.Context, product release.Product) bool {
	var model releaseSourceModel

	if d.source.IsNull() || d.source.IsUnknown() || d.source.As(ctx, &model, basetypes.ObjectAsOptions{}).HasError() {
		return true
	}

	half := model.half(product)

	return !half.versions.IsNull() || half.location.IsNull() || half.location.Equal(types.StringValue(release.Embedded))
}

// learn asks for the releases of one product.
func (o *outlook) learn(ctx context.Context, from releaseDefaults, product release.Product, userAgent string) {
	list, diagnostics := from.list(ctx, product, releaseQuestion{userAgent: userAgent})
	for _, problem := range diagnostics {
		tflog.Warn(ctx, "publishing: "+cluster.Printable(problem.Summary()+": "+problem.Detail()))
	}

	o.mutex.Lock()
	defer o.mutex.Unlock()

	if product == release.Talos {
		o.talos = list.Versions
	} else {
		o.kubernetes = list.Versions
	}

	o.answered = false
}

// next is a [nextFunc].
func (o *outlook) next(talos, kubernetes version.Version) (nextTalos, nextKubernetes version.Version) {
	o.mutex.Lock()
	defer o.mutex.Unlock()

	if !o.answered || !o.asked.Talos.Equal(talos) || !o.asked.Kubernetes.Equal(kubernetes) {
		o.answer.Talos, o.answer.Kubernetes = next(talos, kubernetes, o.talos, o.kubernetes)
		o.asked, o.answered = plan.State{Talos: talos, Kubernetes: kubernetes}, true
	}

	return o.answer.Talos, o.answer.Kubernetes
}
