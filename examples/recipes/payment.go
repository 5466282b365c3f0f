package recipes

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/httpmw/fresh"
	"github.com/oncebox/oncebox/httpmw/httpjson"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/step"
	"github.com/oncebox/oncebox/uow"
)

// The states of a reservation.
const (
	held      = "held"
	paying    = "paying" // the provider may have been asked, and the outcome is not known yet
	paid      = "paid"
	cancelled = "cancelled"
	expired   = "expired"
)

var (
	errDeclined = errors.New("the payment was declined")
	errNotHeld  = errors.New("the reservation is not held any more")
	errPaying   = errors.New("the reservation is being paid")
)

// Reservation is an aggregate.
type Reservation struct {
	event.Recorder `bun:"-"`

	bun.BaseModel `bun:"table:reservations"`
	TenantID      string `bun:",pk"`
	ID            string `bun:",pk"`
	Status        string
	Attempt       int       // of payment
	Token         uow.Token // names the events of the payment
	Version       int64
}

// AggregateType is part of the reservation's identity.
func (*Reservation) AggregateType() string { return "reservation" }

// AggregateID is part of the reservation's identity.
func (r *Reservation) AggregateID() string { return r.ID }

// AggregateVersion counts the events of the reservation.
func (r *Reservation) AggregateVersion() int64 { return r.Version }

// ReservationMade is an event of the reservation.
type ReservationMade struct{ ID string }

// EventType names the event on the wire.
func (ReservationMade) EventType() string { return "reservation.made" }

// ReservationPaid is an event of the reservation.
type ReservationPaid struct{ ID string }

// EventType names the event on the wire.
func (ReservationPaid) EventType() string { return "reservation.paid" }

// HoldEnded is the delayed event of a reservation.
type HoldEnded struct{ ID string }

// EventType names the event on the wire.
func (HoldEnded) EventType() string { return "hold.ended" }

// Payments has the use cases of reservations.
type Payments struct {
	App *oncebox.App
	// Charge asks the provider. A provider that gets a key again charges nothing, and gives the answer of the first request with it.
	Charge func(ctx context.Context, key string) (accepted bool, err error)
}

// tokenHeader has the token with which a client reads its own writes.
const tokenHeader = "X-Read-Token"

// PaymentRoutes serves the reservations of all tenants. Each tenant has a bearer token.
func PaymentRoutes(p *Payments, tenants httpmw.BearerTokens) http.Handler {
	app := p.App
	cfg := httpmw.IdempotencyConfig{Required: true, RequireTenant: true, TokenHeader: tokenHeader}
	once := httpmw.Idempotency(app.UoW, app.Idempotency, httpmw.Caller, &cfg)
	cfg.Lease = &httpmw.LeaseConfig{}
	leased := httpmw.Idempotency(app.UoW, app.Idempotency, httpmw.Caller, &cfg)
	unit := httpmw.UnitOfWork(app.UoW, httpmw.WithTokenHeader(tokenHeader))
	reads := fresh.Reads(app.Inbox, "sales", tokenHeader, nil)
	refusals := httpjson.Errors{
		http.StatusNotFound:        {sql.ErrNoRows},
		http.StatusConflict:        {errNotHeld, errPaying},
		http.StatusPaymentRequired: {errDeclined},
	}
	mux := http.NewServeMux()
	mux.Handle("POST /reservations/{id}", once(httpjson.Handler(http.StatusCreated, refusals, p.reserve)))
	mux.Handle("POST /reservations/{id}/pay", leased(httpjson.Handler(http.StatusNoContent, refusals, p.postPay)))
	mux.Handle("DELETE /reservations/{id}", unit(httpjson.Handler(http.StatusNoContent, refusals, p.cancel)))
	mux.Handle("GET /sales", reads(httpjson.Handler(http.StatusOK, refusals, p.sales)))
	return httpmw.Authenticate(tenants.Scope)(mux)
}

func (p *Payments) reserve(r *http.Request, _ httpjson.Nothing) (httpjson.Nothing, error) {
	return httpjson.Nothing{}, p.App.UoW.Do(r.Context(), func(ctx context.Context, u *uow.Unit) error {
		id := r.PathValue("id")
		_, err := u.Schedule("hold", HoldEnded{id}, event.WithDelay(15*time.Minute),
			event.WithDedupKey("hold of "+id), event.WithAggregate("reservation", id, 0))
		if err != nil {
			return err
		}
		res := &Reservation{TenantID: event.TenantFrom(ctx), ID: id, Status: held}
		res.Record(ReservationMade{id})
		return u.Save(ctx, res)
	})
}

func (p *Payments) postPay(r *http.Request, _ httpjson.Nothing) (httpjson.Answer[httpjson.Nothing], error) {
	token, err := p.pay(r.Context(), r.PathValue("id"))
	return httpjson.Answer[httpjson.Nothing]{Header: http.Header{tokenHeader: {string(token)}}}, err
}

func (p *Payments) pay(ctx context.Context, id string) (uow.Token, error) {
	r, err := p.change(ctx, id, begin)
	switch {
	case err != nil:
		return "", err
	case r.Status == paid:
		return r.Token, nil // that of the request that has paid
	case r.Status != paying:
		return "", errNotHeld
	}
	return p.finish(ctx, r)
}

// finish brings an attempt of payment to its end. Several requests and messages may do that at once.
func (p *Payments) finish(ctx context.Context, r *Reservation) (uow.Token, error) {
	attempt := fmt.Sprintf("reservation %s/%s/%d", r.TenantID, r.ID, r.Attempt)
	accepted, err := step.Call(ctx, attempt, func(ctx context.Context, _ string) (bool, error) { return p.Charge(ctx, attempt) })
	if err != nil {
		return "", err // no outcome: the reservation stays "paying"
	}
	r, err = p.change(ctx, r.ID, p.end(r.Attempt, accepted))
	switch {
	case err != nil:
		return "", err
	case !accepted:
		return "", errDeclined
	}
	return r.Token, nil
}

// begin is committed before the provider is asked.
func begin(_ context.Context, _ *uow.Unit, r *Reservation) error {
	if r.Status == held {
		r.Status = paying
		r.Attempt++
	}
	return nil
}

// end notes the outcome of an attempt. An outcome that another request has noted stays, and so does a later attempt.
func (p *Payments) end(attempt int, accepted bool) change {
	return func(ctx context.Context, u *uow.Unit, r *Reservation) error {
		switch {
		case r.Status != paying || r.Attempt != attempt:
			return nil
		case !accepted:
			r.Status = held // may be paid again, until the hold ends
			return nil
		}
		r.Status = paid
		r.Record(ReservationPaid{r.ID})
		_, err := p.App.Outbox.Delayed().CancelKey(ctx, u.DB(), "hold of "+r.ID)
		return err
	}
}

func (p *Payments) cancel(r *http.Request, _ httpjson.Nothing) (httpjson.Nothing, error) {
	_, err := p.change(r.Context(), r.PathValue("id"), func(ctx context.Context, u *uow.Unit, r *Reservation) error {
		switch r.Status {
		case cancelled:
			return nil
		case held:
			r.Status = cancelled
			_, err := p.App.Outbox.Delayed().CancelKey(ctx, u.DB(), "hold of "+r.ID)
			return err
		case paying:
			return errPaying
		}
		return errNotHeld
	})
	return httpjson.Nothing{}, err
}

// ConsumeHolds lets reservations expire. If a reservation is being paid, it brings that attempt to its end.
func (p *Payments) ConsumeHolds() {
	router := messaging.NewRouter(p.App.Registry)
	messaging.Handle(router, func(ctx context.Context, e HoldEnded) error {
		for {
			r, err := p.change(ctx, e.ID, expire)
			if err != nil || r.Status != paying {
				return err
			}
			// Its request may have died. After a decline the reservation is held again, and no other message lets it expire.
			if _, err := p.finish(ctx, r); err != nil && !errors.Is(err, errDeclined) {
				return err
			}
		}
	})
	p.App.Consume("hold", "holds", router, inbox.Leased())
}

func expire(_ context.Context, _ *uow.Unit, r *Reservation) error {
	if r.Status == held {
		r.Status = expired
	}
	return nil
}

type change func(ctx context.Context, u *uow.Unit, r *Reservation) error

// change changes a reservation in a unit of its own, or in the unit of the request.
func (p *Payments) change(ctx context.Context, id string, do change) (r *Reservation, err error) {
	err = p.App.UoW.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
		r = &Reservation{TenantID: event.TenantFrom(ctx), ID: id}
		if err := u.DB().NewSelect().Model(r).WherePK().For("UPDATE").Scan(ctx); err != nil {
			return err
		}
		if err := do(ctx, u, r); err != nil {
			return err
		}
		if err := u.Save(ctx, r); err != nil {
			return err
		}
		return keepToken(ctx, u, r)
	})
	return r, err
}

// keepToken stores the token of a payment in its row. So every request that finds the reservation paid has it: a request with another key, or the next run
// of a request whose process died after the COMMIT.
func keepToken(ctx context.Context, u *uow.Unit, r *Reservation) (err error) {
	if r.Status != paid || r.Token != "" {
		return nil
	}
	if r.Token, err = u.Token(ctx); err != nil { // last: the unit records no more events
		return err
	}
	_, err = u.DB().NewUpdate().Model(r).Column("token").WherePK().Exec(ctx)
	return err
}
