package adapters

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/oncebox/oncebox/messaging"
)

// Receipt returns the receipt of a message that a receiver settles or gives back. closed says that the receiver is closed: the error is
// [messaging.ErrClosed]. A message that is not ours belongs to another receiver, and would settle a message there: the error begins with call.
func Receipt[R any](closed bool, m *messaging.Message, call string, ours func(R) bool) (receipt R, err error) {
	if closed {
		return receipt, messaging.ErrClosed
	}
	receipt, ok := m.Receipt().(R)
	if !ok || !ours(receipt) {
		return receipt, fmt.Errorf("%s: message %q was received through another receiver: settle it with the receiver that returned it", call, m.ID)
	}
	return receipt, nil
}

// InOrder puts a message that was given back into a list of messages, before the messages that were received after it. number is the place of a message
// in the order of arrival. A message that is in the list stays there once.
func InOrder[T comparable](list []T, one T, number func(T) uint64) []T {
	at, _ := slices.BinarySearchFunc(list, number(one), func(o T, n uint64) int { return cmp.Compare(number(o), n) })
	for i := at; i < len(list) && number(list[i]) == number(one); i++ { // lists may be long, so only these few are looked at
		if list[i] == one {
			return list
		}
	}
	return slices.Insert(list, at, one)
}
