// SPDX-License-Identifier: MPL-2.0

package operator

import (
	"context"
	"sync"
)

// PlayVitistack plays the operator of the KubernetesCluster that the options
// name, until stop is called or ctx ends. stop waits for the end; it comes before
// that of the world.
func PlayVitistack(ctx context.Context, options Options) (stop func()) {
	made := newVitistack(options.withDefaults())

	return play(ctx, made.options, made.pass)
}

// PlayDeclarative plays the operator of the TalosControlPlane that the options
// name, as [PlayVitistack] does.
func PlayDeclarative(ctx context.Context, options Options) (stop func()) {
	made := newDeclarative(options.withDefaults())

	return play(ctx, made.options, made.pass)
}

// play makes a pass at once, and then one after each pause. What a pass could not
// do, because the API did not answer, is for the next one.
func play(ctx context.Context, options Options, pass func(context.Context)) (stop func()) {
	ctx, end := context.WithCancel(ctx)

	var work sync.WaitGroup

	work.Go(func() {
		for ctx.Err() == nil {
			pass(ctx)

			if options.Clock.Sleep(ctx, options.Every) != nil {
				return
			}
		}
	})

	return func() {
		end()
		work.Wait()
	}
}
