// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/compat"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// Reasons why there is no path from one state to another. An error of [Path] may also wrap the errors of package
// compat.
var (
	// ErrDowngrade: one product would have to be downgraded.
	ErrDowngrade = errors.New("downgrades are not done")
	// ErrNoRelease: no release is known of a minor version on the path.
	ErrNoRelease = errors.New("no release is known")
	// ErrNoStart: the running version is unknown.
	ErrNoStart = errors.New("is not known")
	// ErrNoWay: every path leads through an unsupported pair of versions.
	ErrNoWay = errors.New("no supported way")
)

// PathError says why there is no path, and which product of the target is at fault. It unwraps to one of the
// reasons above or to an error of package compat.
type PathError struct {
	Product version.Product
	// Reason is what prevents it, a sentence without a full stop.
	Reason string
	// Remedy is what a person can do about it, one or more sentences.
	Remedy string
	Err    error
}

func (e *PathError) Error() string { return e.Reason }

func (e *PathError) Unwrap() error { return e.Err }

// Path returns the path of a whole cluster from one state to another: the states between its hops, beginning with
// from and ending with to, in which a product that to leaves open keeps its version. Every hop moves one product
// to its next minor version, or to a newer patch, so no path has fewer hops. Every state but the first is
// supported, and so is every pair of versions that occurs during a hop, because a hop mixes only the pairs of its
// two ends.
//
// If both products may move, Talos moves first, so the path from any state on it is the rest of the same path.
// Errors are of type [*PathError].
func Path(from, to State, walk Walk) ([]State, error) {
	talos, err := walk.stops(version.Talos, from.Talos, to.Talos)
	if err != nil {
		return nil, err
	}

	kubernetes, err := walk.stops(version.Kubernetes, from.Kubernetes, to.Kubernetes)
	if err != nil {
		return nil, err
	}

	g := newGrid(talos, kubernetes, walk)
	g.unset = to.Kubernetes.IsZero()

	return g.path()
}

// grid holds the states that a cluster can pass through, with a row for each version of Talos and a column for
// each of Kubernetes.
type grid struct {
	talos, kubernetes []version.Version
	walk              Walk
	// allowed are the states that may be entered, leads those from which the last one can be reached.
	allowed, leads [][]bool
	// unset is true if Kubernetes stays because the target does not name it.
	unset bool
}

func newGrid(talos, kubernetes []version.Version, walk Walk) *grid {
	g := &grid{talos: talos, kubernetes: kubernetes, walk: walk}

	for range talos {
		g.allowed = append(g.allowed, make([]bool, len(kubernetes)))
		g.leads = append(g.leads, make([]bool, len(kubernetes)))
	}

	for i := len(talos) - 1; i >= 0; i-- {
		for j := len(kubernetes) - 1; j >= 0; j-- {
			// What runs now is accepted, supported or not.
			start := i+j == 0
			last := i == len(talos)-1 && j == len(kubernetes)-1

			g.allowed[i][j] = start || walk.supports(talos[i], kubernetes[j])
			g.leads[i][j] = g.allowed[i][j] && (last || g.down(i, j) || g.right(i, j))
		}
	}

	return g
}

// down reports whether Talos may move next.
func (g *grid) down(i, j int) bool {
	return i+1 < len(g.talos) && g.leads[i+1][j] && g.replaces(i)
}

// right reports whether Kubernetes may move next.
func (g *grid) right(i, j int) bool {
	return j+1 < len(g.kubernetes) && g.leads[i][j+1]
}

// replaces reports whether the installer of the next version of Talos accepts a host with this one.
func (g *grid) replaces(i int) bool {
	return g.walk.tolerates(compat.Upgradeable(g.talos[i], g.talos[i+1]))
}

func (g *grid) path() ([]State, error) {
	if !g.leads[0][0] {
		return nil, g.refusal()
	}

	states := []State{{Talos: g.talos[0], Kubernetes: g.kubernetes[0]}}

	for i, j := 0, 0; i+1 < len(g.talos) || j+1 < len(g.kubernetes); {
		if g.down(i, j) {
			i++
		} else {
			j++
		}

		states = append(states, State{Talos: g.talos[i], Kubernetes: g.kubernetes[j]})
	}

	return states, nil
}

// Walk says how a path through several minor versions is chosen.
type Walk struct {
	// Intermediate are versions of Talos and Kubernetes to pass through, instead of the newest known patch of
	// their minor versions. Those that are on no path have no effect.
	Intermediate []version.Version
	// AllowUnknown accepts versions that are newer than the support matrix.
	AllowUnknown bool
	// Releases is the table from which the newest known patches are chosen; nil means the built-in one.
	Releases *compat.Table
}

// supports reports whether the pair may run; an unknown version fits any other.
func (w Walk) supports(talos, kubernetes version.Version) bool {
	if talos.IsZero() || kubernetes.IsZero() {
		return true
	}

	return w.tolerates(compat.Supports(talos, kubernetes))
}

// tolerates reports whether an answer of the matrix is acceptable.
func (w Walk) tolerates(err error) bool {
	return err == nil || (w.AllowUnknown && errors.Is(err, compat.ErrNewer))
}

// stops returns the versions of one product on its path, from the first to the last, one for each minor version.
// If to is zero, the product keeps its version.
func (w Walk) stops(product version.Product, from, to version.Version) ([]version.Version, error) {
	switch order := from.Compare(to); {
	case to.IsZero(), order == 0:
		return []version.Version{from}, nil
	case from.IsZero():
		return nil, &PathError{
			Product: product, Err: ErrNoStart, Reason: fmt.Sprintf("which %s runs now %v, so no way to %s can be found", product.Name(), ErrNoStart, to),
			Remedy: fmt.Sprintf("Say which version of %s to start from.", product.Name()),
		}
	case order > 0:
		older := "older than"
		if to.Core().Equal(from.Core()) {
			older = "a pre-release that comes before"
		}

		return nil, &PathError{
			Product: product, Err: ErrDowngrade, Reason: fmt.Sprintf("%s %s is %s %s, which runs, and %v", product.Name(), to, older, from, ErrDowngrade),
			Remedy: fmt.Sprintf("Ask for %s %s or newer.", product.Name(), from),
		}
	case from.Minor().Major != to.Minor().Major:
		return nil, &PathError{
			Product: product, Err: ErrNoWay,
			Reason: fmt.Sprintf("%s %s is of another major version than %s, which runs, and %v leads there", product.Name(), to, from, ErrNoWay),
			Remedy: fmt.Sprintf("Choose a version of %s %d, or use a newer release of this provider.", product.Name(), from.Minor().Major),
		}
	}

	if err := w.knows(product, to); err != nil {
		return nil, err
	}

	stops := []version.Version{from}

	// However far away the target is, the list of missing minor versions is limited.
	var missing []version.Minor

	for minor := from.Minor().Next(); minor.Compare(to.Minor()) < 0 && len(missing) <= readable.MaxNames; minor = minor.Next() {
		if through, found := w.through(product, minor); found {
			stops = append(stops, through)
		} else {
			missing = append(missing, minor)
		}
	}

	if len(missing) > 0 {
		return nil, refuseMissing(product, from, to, missing)
	}

	return append(stops, to), nil
}

// refuseMissing returns the error about the minor versions on the path that have no known release.
func refuseMissing(product version.Product, from, to version.Version, missing []version.Minor) *PathError {
	refused := &PathError{Product: product, Err: ErrNoRelease}

	minors := "minor version " + missing[0].String()
	refused.Remedy = fmt.Sprintf("Name the release of %s %s to walk through in intermediate_versions.", product.Name(), missing[0])

	if len(missing) > 1 {
		names := make([]string, 0, readable.MaxNames)
		for _, minor := range missing[:min(len(missing), readable.MaxNames)] {
			names = append(names, minor.String())
		}

		minors = "minor versions " + strings.Join(names, ", ")
		refused.Remedy = fmt.Sprintf("Name a release of each of them (of %s) in intermediate_versions, or choose a version nearer to what runs.", product.Name())
	}

	if len(missing) > readable.MaxNames {
		minors += " and more"
	}

	refused.Reason = fmt.Sprintf("the way from %s %s to %s leads through the %s, of which %v", product.Name(), from, to, minors, ErrNoRelease)

	return refused
}

// knows refuses a version that is newer than the matrix, unless that is allowed, and one that is older than it.
func (w Walk) knows(product version.Product, to version.Version) error {
	var err error
	if product == version.Talos {
		_, err = compat.Find(to.Minor())
	} else {
		_, err = compat.TalosMinorsFor(to.Minor())
	}

	if w.tolerates(err) {
		return nil
	}

	refused := &PathError{Product: product, Err: err, Reason: err.Error(), Remedy: "Choose a version that the support matrix knows."}
	if errors.Is(err, compat.ErrNewer) {
		refused.Remedy = "Choose a version that the support matrix knows, use a newer release of this provider, or set allow_unknown_versions = true."
	}

	return refused
}

// through returns the version through which a minor version is crossed.
func (w Walk) through(product version.Product, minor version.Minor) (version.Version, bool) {
	// The minor versions of Talos and Kubernetes are too far apart for one version to fit both.
	for _, named := range w.Intermediate {
		if !named.IsZero() && named.Minor() == minor {
			return named, true
		}
	}

	return cmp.Or(w.Releases, compat.BuiltIn()).Newest(product, minor)
}

// refusal returns the error about what prevents every path through the grid.
func (g *grid) refusal() *PathError {
	lastTalos, lastKubernetes := len(g.talos)-1, len(g.kubernetes)-1

	if !g.allowed[lastTalos][lastKubernetes] {
		return g.refuseEnd(g.talos[lastTalos], g.kubernetes[lastKubernetes])
	}

	i, j := g.frontier()
	at := State{Talos: g.talos[i], Kubernetes: g.kubernetes[j]}

	var blocks []string

	if i < lastTalos {
		if err := compat.Upgradeable(g.talos[i], g.talos[i+1]); !g.walk.tolerates(err) {
			blocks = append(blocks, err.Error())
		} else {
			blocks = append(blocks, mismatch(g.talos[i+1], g.kubernetes[j]))
		}
	}

	if j < lastKubernetes {
		blocks = append(blocks, mismatch(g.talos[i], g.kubernetes[j+1]))
	}

	refused := &PathError{
		Product: version.Talos, Err: ErrNoWay,
		Reason: fmt.Sprintf("%v leads on from %s: %s", ErrNoWay, at, strings.Join(blocks, ", and ")),
		Remedy: "Bring the cluster to a supported pair of versions first, or choose another target.",
	}

	if lastKubernetes == 0 {
		refused.Reason = fmt.Sprintf("%s on the way, %s", strings.Join(blocks, ", and "), g.standing())
		refused.Remedy = "Bring Kubernetes into that range first, or choose another talos_version."
	}

	if lastTalos == 0 {
		refused.Product = version.Kubernetes
	}

	return refused
}

// CheckPair says why the two versions do not go together, whatever a cluster runs; nil if they do, or if
// AllowUnknown accepts them.
func (w Walk) CheckPair(talos, kubernetes version.Version) *PathError {
	if err := compat.Supports(talos, kubernetes); !w.tolerates(err) {
		return refusePair(talos, kubernetes, err)
	}

	return nil
}

// refusePair returns the error about two requested versions that do not go together; err is what the matrix says
// about them.
func refusePair(talos, kubernetes version.Version, err error) *PathError {
	refused := &PathError{Product: version.Kubernetes, Err: err, Reason: err.Error()}

	switch {
	case errors.Is(err, compat.ErrNewer):
		refused.Remedy = "Choose versions that the support matrix knows, use a newer release of this provider, or set allow_unknown_versions = true."
	case errors.Is(err, compat.ErrUnknownMinor):
		refused.Remedy = "Choose versions that the support matrix knows."
	default:
		refused.Reason = fmt.Sprintf("%s, and %s is asked for beside it", mismatch(talos, kubernetes), kubernetes)
		refused.Remedy = "Choose a kubernetes_version in that range, or another talos_version."
	}

	return refused
}

// refuseEnd returns the error about the two versions at the end of the path.
func (g *grid) refuseEnd(talos, kubernetes version.Version) *PathError {
	err := compat.Supports(talos, kubernetes)
	refused := refusePair(talos, kubernetes, err)

	if len(g.kubernetes) == 1 {
		refused.Product = version.Talos
	}

	switch {
	case errors.Is(err, compat.ErrUnknownMinor):
	case len(g.kubernetes) == 1:
		refused.Reason = fmt.Sprintf("%s, %s", mismatch(talos, kubernetes), g.standing())
		refused.Remedy = "Bring Kubernetes into that range first, or choose another talos_version."
	case len(g.talos) == 1:
		refused.Reason = fmt.Sprintf("%s, and %s is asked for", mismatch(talos, kubernetes), kubernetes)
		refused.Remedy = "Choose a kubernetes_version in that range, or set a talos_version that runs it."
	}

	return refused
}

// standing says why Kubernetes keeps its version.
func (g *grid) standing() string {
	if g.unset {
		return fmt.Sprintf("the cluster runs %s, and kubernetes_version is not set", g.kubernetes[0])
	}

	return fmt.Sprintf("the cluster runs %s, and kubernetes_version asks for no other", g.kubernetes[0])
}

// mismatch says how a pair is not supported: "Talos 1.14.1 needs Kubernetes 1.32 or newer".
func mismatch(talos, kubernetes version.Version) string {
	oldest, newest, err := compat.KubernetesMinors(talos.Minor())

	switch {
	case err != nil:
		return err.Error()
	case kubernetes.Minor().Compare(oldest) < 0:
		return fmt.Sprintf("Talos %s needs Kubernetes %s or newer", talos, oldest)
	default:
		return fmt.Sprintf("Talos %s needs Kubernetes %s or older", talos, newest)
	}
}

// frontier returns the state farthest along the path that can still be reached.
func (g *grid) frontier() (farTalos, farKubernetes int) {
	reached := make([][]bool, len(g.talos))

	for i := range g.talos {
		reached[i] = make([]bool, len(g.kubernetes))

		for j := range g.kubernetes {
			fromAbove := i > 0 && reached[i-1][j] && g.replaces(i-1)
			fromLeft := j > 0 && reached[i][j-1]
			reached[i][j] = i+j == 0 || (g.allowed[i][j] && (fromAbove || fromLeft))

			if reached[i][j] && i+j > farTalos+farKubernetes {
				farTalos, farKubernetes = i, j
			}
		}
	}

	return farTalos, farKubernetes
}

// State is what a whole cluster runs between two hops. A zero version is unknown.
type State struct {
	Talos, Kubernetes version.Version
}

// String returns a text such as "Talos 1.13.4, Kubernetes 1.35.2".
func (s State) String() string {
	switch {
	case s.Kubernetes.IsZero():
		return "Talos " + s.Talos.String()
	case s.Talos.IsZero():
		return "Kubernetes " + s.Kubernetes.String()
	default:
		return "Talos " + s.Talos.String() + ", Kubernetes " + s.Kubernetes.String()
	}
}

// version returns the version of one product.
func (s State) version(product version.Product) version.Version {
	if product == version.Kubernetes {
		return s.Kubernetes
	}

	return s.Talos
}

// Hop is one part of the path: every node, or every component of Kubernetes, moves to the version of the product
// in To. From and To are equal if nodes only get another image, or are only brought back into service.
type Hop struct {
	Product  version.Product
	From, To State
}

// hopsOf returns the hops between the states of a path.
func hopsOf(states []State) []Hop {
	var hops []Hop

	for index := 1; index < len(states); index++ {
		hop := Hop{Product: version.Talos, From: states[index-1], To: states[index]}
		if hop.From.Talos.Equal(hop.To.Talos) {
			hop.Product = version.Kubernetes
		}

		hops = append(hops, hop)
	}

	return hops
}

// hopsText returns a path as text: "Talos 1.11.6, Kubernetes 1.33.2 -> Talos 1.12.8 -> Kubernetes 1.34.5 -> Talos
// 1.13.4".
func hopsText(hops []Hop) string {
	if len(hops) == 0 {
		return ""
	}

	stops := []string{hops[0].From.String()}
	for _, hop := range hops {
		stops = append(stops, hop.Product.Name()+" "+hop.To.version(hop.Product).String())
	}

	return strings.Join(stops, " -> ")
}
