package recipes

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/uow"
)

// GivenUp says that an event could not be published, or that a consumer could not handle a message.
type GivenUp struct{ ID, Type, Consumer, Error string }

// EventType is the name of the event.
func (GivenUp) EventType() string { return "alarm.given_up" }

// NewAlarmed makes an application that announces its dead letters on the topic "alarm".
func NewAlarmed(db *bun.DB, broker oncebox.Broker, cfg config.Config) (*oncebox.App, error) {
	var app *oncebox.App
	cfg.Outbox.OnDead = func(ctx context.Context, tx bun.Tx, d outbox.DeadLetter) error {
		_, err := app.Outbox.Add(ctx, tx, "alarm", GivenUp{ID: d.ID, Type: d.Type, Error: d.Error})
		return err
	}
	cfg.Inbox.OnDead = func(_ context.Context, u *uow.Unit, d inbox.DeadLetter) error {
		return u.Add("alarm", GivenUp{ID: d.Envelope.ID, Type: d.Envelope.Type, Consumer: d.Key.Consumer, Error: d.Error})
	}
	var err error
	app, err = oncebox.New(db, broker, cfg)
	return app, err
}

// PostAlarms calls post for each alarm, for example to write it into a chat. A failed call is tried again, for days.
func PostAlarms(app *oncebox.App, post func(ctx context.Context, text string) error) {
	router := messaging.NewRouter(app.Registry)
	messaging.Handle(router, func(ctx context.Context, e GivenUp) error {
		return post(ctx, e.Type+" "+e.ID+" was given up: "+e.Error)
	})
	app.Consume("alarm", "chat", router, inbox.WithoutUnit())
}
