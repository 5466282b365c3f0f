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

// ChooseBroker chooses the broker that the variables of the service or the flag name. A command that uses the broker calls it first: it asks neither
// the broker nor the database, so a mistake in the settings is reported also where both are away.
func (s *Session) ChooseBroker() (err error) {
	if err := s.configure(); err != nil {
		return err
	}
	s.Kind, err = s.Brokers.Choose(s.Broker)
	return err
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
	if s.Kind == nil {
		return s.View(), nil
	}
	// The log goes where that of the command goes; metrics of a command that ends at once would reach nobody.
	options := brokers.Options{Env: config.Env, Brief: true, Telemetry: telemetry.Config{Logger: s.Cfg.Telemetry.Logger}}
	var err error
	if s.asked, err = s.Kind.Connect(ctx, options); err != nil {
		return nil, fmt.Errorf("ask the broker how many messages wait; with --broker none the command shows the numbers that the processes of the service "+
			"have stored: %w", err)
	}
	reader, ok := s.asked.(messaging.SubscriptionReader)
	if !ok {
		fmt.Fprintf(s.Errs, "%s does not report how many messages wait, so these numbers were stored by the processes of the service.\n", s.Kind.Title)
		return s.View(), nil
	}
	box := s.Inbox()
	return s.View().WithConsumers(func(ctx context.Context) ([]state.Consumer, error) { return box.State().ConsumersAt(ctx, reader) }), nil
}

// AsksBroker reports whether ViewOfBroker has connected to a broker.
func (s *Session) AsksBroker() bool { return s.asked != nil }
