package cli

import (
	"context"
	"fmt"

	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/inbox/state"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/brokers"
	"github.com/oncebox/oncebox/ops"
	"github.com/oncebox/oncebox/telemetry"
)

// Connect connects to the broker that the variables of the service or the flag name; nil if there is none. The caller closes it.
func (s *Session) Connect(ctx context.Context, o brokers.Options) (brokers.Connection, error) {
	kind, err := s.Brokers.Choose(s.Broker)
	if kind == nil || err != nil {
		return nil, err
	}
	o.Env = config.Env
	return kind.Connect(ctx, o)
}

// NoBroker says why no broker is used.
func (s *Session) NoBroker() string {
	if s.Broker == brokers.None {
		return "--broker is none"
	}
	return s.Brokers.Variables() + " is not set"
}

// ViewOfBroker is View with fresh numbers of waiting messages from the broker, if the service has a broker that reports them. Otherwise it
// shows the numbers that processes of the service have stored.
func (s *Session) ViewOfBroker(ctx context.Context) (*ops.View, error) {
	kind, err := s.Brokers.Choose(s.Broker)
	if kind == nil || err != nil {
		return s.View(), err
	}
	// The log goes where that of the command goes; metrics of a command that ends at once would reach nobody.
	options := brokers.Options{Env: config.Env, Brief: true, Telemetry: telemetry.Config{Logger: s.Cfg.Telemetry.Logger}}
	if s.asked, err = kind.Connect(ctx, options); err != nil {
		return nil, fmt.Errorf("ask the broker how many messages wait; with --broker none the command shows the numbers that the processes of the service "+
			"have stored: %w", err)
	}
	reader, ok := s.asked.(messaging.SubscriptionReader)
	if !ok {
		fmt.Fprintf(s.Errs, "%s does not report how many messages wait, so these numbers were stored by the processes of the service.\n", kind.Title)
		return s.View(), nil
	}
	box := s.Inbox()
	return s.View().WithConsumers(func(ctx context.Context) ([]state.Consumer, error) { return box.State().ConsumersAt(ctx, reader) }), nil
}

// AsksBroker reports whether ViewOfBroker has connected to a broker.
func (s *Session) AsksBroker() bool { return s.asked != nil }
