// SPDX-License-Identifier: MPL-2.0

package real

import (
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/siderolabs/discovery-api/api/v1alpha1/server/pb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
)

// discovery is a discovery service on the network of the machines: it passes on what each machine reports, without
// reading it. Nothing in it expires.
type discovery struct {
	pb.UnimplementedClusterServer

	server   *grpc.Server
	endpoint string

	mutex sync.Mutex
	// affiliates are the machines of each cluster by their identity.
	affiliates map[string]map[string]*pb.Affiliate
	// changed is closed, and replaced, on every change.
	changed chan struct{}
}

// serveDiscovery starts to serve.
func serveDiscovery() (*discovery, error) {
	made := &discovery{server: grpc.NewServer(), affiliates: map[string]map[string]*pb.Affiliate{}, changed: make(chan struct{})}

	listener, err := net.Listen("tcp", net.JoinHostPort(gateway.String(), "3000"))
	if err != nil {
		return nil, fmt.Errorf("listening for the discovery service: %w", err)
	}

	made.endpoint = "http://" + listener.Addr().String() + "/"

	pb.RegisterClusterServer(made.server, made)

	// Serve returns an error when the server is stopped.
	go func() { _ = made.server.Serve(listener) }()

	return made, nil
}

// Hello answers with the address under which the machine was seen.
func (d *discovery) Hello(ctx context.Context, _ *pb.HelloRequest) (*pb.HelloResponse, error) {
	answer := &pb.HelloResponse{}

	if client, ok := peer.FromContext(ctx); ok {
		if address, ok := client.Addr.(*net.TCPAddr); ok {
			answer.ClientIp = address.IP
		}
	}

	return answer, nil
}

// AffiliateUpdate stores what a machine reports.
func (d *discovery) AffiliateUpdate(_ context.Context, said *pb.AffiliateUpdateRequest) (*pb.AffiliateUpdateResponse, error) {
	d.mutex.Lock()
	defer d.mutex.Unlock()

	known := d.affiliates[said.GetClusterId()]
	if known == nil {
		known = map[string]*pb.Affiliate{}
		d.affiliates[said.GetClusterId()] = known
	}

	// An affiliate that watchers have received is not changed.
	one := &pb.Affiliate{Id: said.GetAffiliateId(), Data: said.GetAffiliateData(), Endpoints: said.GetAffiliateEndpoints()}
	if before := known[one.GetId()]; before != nil && one.Data == nil {
		one.Data = before.GetData()
	}

	known[one.GetId()] = one
	d.tell()

	return &pb.AffiliateUpdateResponse{}, nil
}

// AffiliateDelete removes a machine.
func (d *discovery) AffiliateDelete(_ context.Context, said *pb.AffiliateDeleteRequest) (*pb.AffiliateDeleteResponse, error) {
	d.mutex.Lock()
	defer d.mutex.Unlock()

	delete(d.affiliates[said.GetClusterId()], said.GetAffiliateId())
	d.tell()

	return &pb.AffiliateDeleteResponse{}, nil
}

func (d *discovery) tell() {
	close(d.changed)
	d.changed = make(chan struct{})
}

// List returns the machines of a cluster.
func (d *discovery) List(_ context.Context, asked *pb.ListRequest) (*pb.ListResponse, error) {
	known, _ := d.look(asked.GetClusterId())

	answer := &pb.ListResponse{}
	for _, one := range known {
		answer.Affiliates = append(answer.Affiliates, one)
	}

	return answer, nil
}

// look returns what is known about a cluster, and a channel that is closed once that changes.
func (d *discovery) look(id string) (map[string]*pb.Affiliate, <-chan struct{}) {
	d.mutex.Lock()
	defer d.mutex.Unlock()

	known := map[string]*pb.Affiliate{}
	for key, one := range d.affiliates[id] {
		known[key] = one
	}

	return known, d.changed
}

// Watch sends all machines of a cluster, and then each change.
func (d *discovery) Watch(asked *pb.WatchRequest, stream grpc.ServerStreamingServer[pb.WatchResponse]) error {
	var sent map[string]*pb.Affiliate

	for {
		known, changed := d.look(asked.GetClusterId())
		news, gone := &pb.WatchResponse{}, &pb.WatchResponse{Deleted: true}

		for id, one := range known {
			if sent[id] != one {
				news.Affiliates = append(news.Affiliates, one)
			}
		}

		for id := range sent {
			if known[id] == nil {
				gone.Affiliates = append(gone.Affiliates, &pb.Affiliate{Id: id})
			}
		}

		if sent == nil || len(news.GetAffiliates()) > 0 {
			if err := stream.Send(news); err != nil {
				return err
			}
		}

		if len(gone.GetAffiliates()) > 0 {
			if err := stream.Send(gone); err != nil {
				return err
			}
		}

		sent = known

		select {
		case <-stream.Context().Done():
			return stream.Context().Err()
		case <-changed:
		}
	}
}
