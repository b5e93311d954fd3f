// SPDX-License-Identifier: MPL-2.0

package real

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/jsimonetti/rtnetlink/v2"
	"github.com/jsimonetti/rtnetlink/v2/driver"
	"github.com/jsimonetti/rtnetlink/v2/rtnl"
	"golang.org/x/sys/unix"
)

const (
	bridgeName = "machines"
	// machineLink is the name of a machine's network card in the machine.
	machineLink = "eth0"
)

var (
	// network is the network of the machines of a world, gateway the address of the world itself.
	network = netip.MustParsePrefix("10.5.0.0/24")
	gateway = netip.MustParseAddr("10.5.0.1")
)

// bringUpLoopback makes 127.0.0.1 reachable in a new network namespace.
func bringUpLoopback() error {
	links, err := rtnl.Dial(nil)
	if err != nil {
		return fmt.Errorf("reaching the network of the kernel: %w", err)
	}
	defer links.Close()

	loopback, err := net.InterfaceByName("lo")
	if err != nil {
		return fmt.Errorf("finding the loopback link: %w", err)
	}

	if err := links.LinkUp(loopback); err != nil {
		return fmt.Errorf("bringing the loopback link up: %w", err)
	}

	return nil
}

// makeBridge creates the bridge to which the machines are attached.
func makeBridge() error {
	if err := newLink(&rtnetlink.LinkMessage{
		Attributes: &rtnetlink.LinkAttributes{Name: bridgeName, Info: &rtnetlink.LinkInfo{Kind: "bridge"}},
	}); err != nil {
		return fmt.Errorf("making the bridge: %w", err)
	}

	return address(bridgeName, netip.PrefixFrom(gateway, network.Bits()))
}

// dropLink removes a link if it exists.
func dropLink(name string) error {
	link, err := net.InterfaceByName(name)
	if err != nil {
		return nil
	}

	links, err := rtnetlink.Dial(nil)
	if err != nil {
		return fmt.Errorf("reaching the network of the kernel: %w", err)
	}
	defer links.Close()

	err = links.Link.Delete(uint32(link.Index))
	if errors.Is(err, unix.ENODEV) {
		return nil
	}

	return err
}

func newLink(message *rtnetlink.LinkMessage) error {
	links, err := rtnetlink.Dial(nil)
	if err != nil {
		return err
	}
	defer links.Close()

	return links.Link.New(message)
}

// address gives a link an address and brings it up.
func address(name string, prefix netip.Prefix) error {
	links, err := rtnl.Dial(nil)
	if err != nil {
		return fmt.Errorf("reaching the network of the kernel: %w", err)
	}
	defer links.Close()

	link, err := net.InterfaceByName(name)
	if err != nil {
		return fmt.Errorf("finding the link %s: %w", name, err)
	}

	ip := &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())}
	if err := links.AddrAdd(link, ip); err != nil {
		return fmt.Errorf("giving %s the address %s: %w", name, prefix, err)
	}

	if err := links.LinkUp(link); err != nil {
		return fmt.Errorf("bringing %s up: %w", name, err)
	}

	return nil
}

// plugIn creates a veth pair from the bridge to the network namespace of a process.
func plugIn(name string, pid int) error {
	bridge, err := net.InterfaceByName(bridgeName)
	if err != nil {
		return fmt.Errorf("finding the bridge: %w", err)
	}

	err = newLink(&rtnetlink.LinkMessage{
		Flags: unix.IFF_UP, Change: unix.IFF_UP,
		Attributes: &rtnetlink.LinkAttributes{
			Name:   name,
			Master: new(uint32(bridge.Index)),
			Info: &rtnetlink.LinkInfo{Kind: "veth", Data: &driver.Veth{PeerInfo: &rtnetlink.LinkMessage{
				Attributes: &rtnetlink.LinkAttributes{Name: machineLink, NetNS: rtnetlink.NetNSForPID(uint32(pid))},
			}}},
		},
	})
	if err != nil {
		return fmt.Errorf("plugging %s in: %w", name, err)
	}

	return nil
}

// connectMachine sets up the network in a machine.
func connectMachine(ip netip.Addr) error {
	if err := bringUpLoopback(); err != nil {
		return err
	}

	if err := address(machineLink, netip.PrefixFrom(ip, network.Bits())); err != nil {
		return err
	}

	links, err := rtnl.Dial(nil)
	if err != nil {
		return fmt.Errorf("reaching the network of the kernel: %w", err)
	}
	defer links.Close()

	link, err := net.InterfaceByName(machineLink)
	if err != nil {
		return fmt.Errorf("finding the link of the machine: %w", err)
	}

	everywhere := net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}
	if err := links.RouteAdd(link, everywhere, gateway.AsSlice()); err != nil {
		return fmt.Errorf("adding the route of the machine: %w", err)
	}

	return nil
}
