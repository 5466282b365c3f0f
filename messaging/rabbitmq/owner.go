package rabbitmq

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/oncebox/oncebox/internal/adapters"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/wire"
)

// The owner of a subscription, the service and its database, is stored in two exchanges that have no other purpose. An exchange has one argument that
// the broker compares with the one of a second declaration, alternate-exchange; its refusal says what is stored. So the first declaration wins,
// however many come at once, and AMQP alone shows the owner.
const (
	alternate        = "alternate-exchange"
	sourceMark       = adapters.Source
	installationMark = adapters.Installation
	layoutMark       = "layout" // see topology.makeAll
)

// own stores the owner of a subscription, as far as it is given, and refuses another one.
func (t *topology) own(ctx context.Context, at *session, s messaging.Subscription) error {
	mend := func(part string) string { return t.mendOf(s, part) }
	other, err := t.mark(ctx, at, s, sourceMark, s.Source)
	if err != nil {
		return err
	}
	if other != "" {
		return adapters.Owner{Source: other}.Admits(s, mend)
	}
	if other, err = t.mark(ctx, at, s, installationMark, s.Installation); err != nil {
		return err
	}
	return adapters.Owner{Source: s.Source, Installation: other}.Admits(s, mend)
}

func (t *topology) markOf(s messaging.Subscription, what string) string {
	return t.names.of(s.Topic, s.Name) + separator + what
}

// mendOf is the command that forgets a part of the owner. It needs no plugin.
func (t *topology) mendOf(s messaging.Subscription, what string) string {
	return fmt.Sprintf(`delete the exchange %q, in the management UI or with `+
		"`rabbitmqctl eval 'rabbit_exchange:delete(rabbit_misc:r(<<\"/\">>, exchange, <<\"%[1]s\">>), false, <<\"operator\">>).'` "+
		`(with your virtual host in place of "/"), and start this service again`, t.markOf(s, what))
}

// mark stores a part of the owner. It returns what is stored if that is something else. A program that only checks compares what is stored, as far as it
// may: the broker asks for the right to configure, also for an exchange that exists.
func (t *topology) mark(ctx context.Context, at *session, s messaging.Subscription, what, value string) (other string, err error) {
	if value == "" {
		return "", nil
	}
	stored := t.names.value(what, wire.Escape(value, "."))
	err = at.with(ctx, func(ch *amqp.Channel) error {
		if !t.make {
			if err := ch.ExchangeDeclarePassive(t.markOf(s, what), amqp.ExchangeFanout, true, false, true, false, nil); err != nil {
				return err
			}
		}
		return ch.ExchangeDeclare(t.markOf(s, what), amqp.ExchangeFanout, true, false, true, false, amqp.Table{alternate: stored})
	})
	if isCode(err, amqp.PreconditionFailed) {
		if other := currentArg.FindStringSubmatch(err.Error()); other != nil {
			return wire.Unescape(strings.TrimPrefix(other[1], t.names.value(what, ""))), nil
		}
	}
	switch {
	case err == nil, !t.make && (isCode(err, amqp.NotFound) || isCode(err, amqp.AccessRefused)):
		return "", nil
	default:
		return "", t.explain(s, err)
	}
}

// currentArg finds the stored value in the broker's text.
var currentArg = regexp.MustCompile(`but current is '([^']*)'`)
