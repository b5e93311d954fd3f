// SPDX-License-Identifier: MPL-2.0

package releases

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"
	"github.com/hashicorp/terraform-plugin-log/tflog"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/release"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// releasesTimeout bounds how long a source of releases is waited for. The upgrade runs meanwhile.
const releasesTimeout = 10 * time.Second

// Next returns the newest releases to which a cluster with these versions can be upgraded in one step. The existing
// releases are in ascending order. A version that is zero is unknown and has no next release. If Talos is unknown,
// Kubernetes has none either, because Talos has to support it.
func Next(talos, kubernetes version.Version, talosReleases, kubernetesReleases []version.Version) (nextTalos, nextKubernetes version.Version) {
	if talos.IsZero() {
		return version.Version{}, version.Version{}
	}

	at := plan.State{Talos: talos, Kubernetes: kubernetes}
	aheadTalos, aheadKubernetes := NewReachable(RunningVersions{Lowest: at, Highest: at}, talosReleases, kubernetesReleases).Next()

	return version.Highest(aheadTalos...), version.Highest(aheadKubernetes...)
}

// Known are the existing releases, as far as their sources have answered.
type Known struct {
	mutex      sync.Mutex
	talos      []version.Version
	kubernetes []version.Version
	// asked are the versions of the last call of [Known.Next], and answer is its result.
	asked, answer plan.State
	answered      bool
}

// Outlook requests the existing releases: at once if that needs no network, otherwise in the background, which ends
// with the returned function at the latest. A source that does not answer counts as empty.
func (d Defaults) Outlook(ctx context.Context, userAgent string) (known *Known, end func()) {
	known = &Known{}
	bounded, cancel := context.WithTimeout(ctx, releasesTimeout)

	var background sync.WaitGroup

	for _, product := range []version.Product{version.Talos, version.Kubernetes} {
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

// offline reports whether the releases of a product are known without network access.
func (d Defaults) offline(ctx context.Context, product version.Product) bool {
	var model providerSourceModel

	if d.Source.IsNull() || d.Source.IsUnknown() || d.Source.As(ctx, &model, basetypes.ObjectAsOptions{}).HasError() {
		return true
	}

	half := model.product(product)

	return !half.versions.IsNull() || half.location.IsNull() || half.location.Equal(types.StringValue(release.Embedded))
}

// learn requests the releases of one product.
func (o *Known) learn(ctx context.Context, from Defaults, product version.Product, userAgent string) {
	list, diagnostics := from.List(ctx, product, Question{UserAgent: userAgent})
	for _, problem := range diagnostics {
		tflog.Warn(ctx, "publishing: "+readable.Printable(problem.Summary()+": "+problem.Detail()))
	}

	o.mutex.Lock()
	defer o.mutex.Unlock()

	if product == version.Talos {
		o.talos = slices.DeleteFunc(list.Versions, from.Known().IsWithdrawn)
	} else {
		o.kubernetes = list.Versions
	}

	o.answered = false
}

// Next returns the newest release of each product to which a cluster with these versions can be upgraded in one step; zero if
// there is none, or none is known yet. It returns at once.
func (o *Known) Next(talos, kubernetes version.Version) (nextTalos, nextKubernetes version.Version) {
	o.mutex.Lock()
	defer o.mutex.Unlock()

	if !o.answered || !o.asked.Talos.Equal(talos) || !o.asked.Kubernetes.Equal(kubernetes) {
		o.answer.Talos, o.answer.Kubernetes = Next(talos, kubernetes, o.talos, o.kubernetes)
		o.asked, o.answered = plan.State{Talos: talos, Kubernetes: kubernetes}, true
	}

	return o.answer.Talos, o.answer.Kubernetes
}
