// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"fmt"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// watched holds all objects of a kind as the API server last reported them. With the factory of client-go, the
// informers and listers of every kind would be compiled into the simulator.
type watched[T runtime.Object] struct {
	informer cache.SharedIndexInformer
}

func watching[T runtime.Object](client cache.Getter, resource string, example T, indexers cache.Indexers) watched[T] {
	return watched[T]{informer: cache.NewSharedIndexInformer(
		cache.NewListWatchFromClient(client, resource, "", fields.Everything()), example, 0, indexers)}
}

// get returns one object; the namespace of a node is empty. What it and the other methods return must not be
// written to.
func (w watched[T]) get(namespace, name string) (T, bool) {
	object, _, err := w.informer.GetIndexer().GetByKey(cache.NewObjectName(namespace, name).String())
	if err != nil {
		object = nil
	}

	typed, found := object.(T)

	return typed, found
}

func (w watched[T]) all() []T { return typedOf[T](w.informer.GetIndexer().List()) }

// by returns what an index has under a value.
func (w watched[T]) by(index, value string) []T {
	objects, err := w.informer.GetIndexer().ByIndex(index, value)
	if err != nil {
		// The index was made with the cache.
		panic(err)
	}

	return typedOf[T](objects)
}

// handle makes the cache call one function for each new state and one for each deletion.
func (w watched[T]) handle(seen, gone func(T)) error {
	_, err := w.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) {
			if typed, ok := object.(T); ok {
				seen(typed)
			}
		},
		UpdateFunc: func(_, object any) {
			if typed, ok := object.(T); ok {
				seen(typed)
			}
		},
		DeleteFunc: func(object any) {
			if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = last.Obj
			}

			if typed, ok := object.(T); ok {
				gone(typed)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watching the cluster: %w", err)
	}

	return nil
}

func typedOf[T any](objects []any) []T {
	all := make([]T, 0, len(objects))

	for _, object := range objects {
		if typed, ok := object.(T); ok {
			all = append(all, typed)
		}
	}

	return all
}
