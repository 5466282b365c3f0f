package serve

import (
	"cmp"
	"context"
	"fmt"
	"net/http"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/httpmw/httpjson"
)

// Build makes the service in a test, on a pool and a broker that are there: see oncetest.Serve. It calls Configure with cfg, makes the service's own
// tables, and calls Setup. The tables of oncebox must exist. requests answers as a process of [Run] does, without its spans, metrics and time limit.
func (s Service) Build(ctx context.Context, db *bun.DB, broker oncebox.Broker, cfg config.Config) (app *oncebox.App, requests http.Handler, err error) {
	process := s.Defaults
	if err := s.configure(&cfg, &process); err != nil {
		return nil, nil, err
	}
	if app, err = oncebox.New(db, broker, cfg); err != nil {
		return nil, nil, err
	}
	if err := s.makeTables(ctx, db); err != nil {
		return nil, nil, err
	}
	if requests, err = s.setUp(ctx, app); err != nil {
		return nil, nil, err
	}
	return app, mounted(requests), nil
}

// End calls Close, if the service has it. [Run] and a test call it last.
func (s Service) End() error {
	if s.Close == nil {
		return nil
	}
	return s.Close()
}

// configure lets the service change the settings, and gives it its name.
func (s Service) configure(app *config.Config, process *Config) error {
	if s.Configure != nil {
		if err := s.Configure(app, process); err != nil {
			return fmt.Errorf("serve: Service.Configure: %w", err)
		}
	}
	app.UoW.Source = cmp.Or(app.UoW.Source, s.Source)
	return nil
}

func (s Service) makeTables(ctx context.Context, db *bun.DB) error {
	if s.Migrate == nil {
		return nil
	}
	if err := s.Migrate(ctx, db); err != nil {
		return fmt.Errorf("serve: Service.Migrate: %w", err)
	}
	return nil
}

func (s Service) setUp(ctx context.Context, app *oncebox.App) (http.Handler, error) {
	requests, err := s.Setup(ctx, app)
	if err != nil {
		return nil, fmt.Errorf("serve: Service.Setup: %w", err)
	}
	return requests, nil
}

// mounted puts around the handler of a service what each service needs.
func mounted(requests http.Handler) http.Handler {
	if requests == nil {
		return nothing()
	}
	if mux, ok := requests.(*http.ServeMux); ok {
		requests = httpjson.Mux(mux)
	}
	return httpmw.Metadata()(requests)
}

// nothing is the handler of a process without requests.
func nothing() http.Handler { return httpjson.Mux(http.NewServeMux()) }
