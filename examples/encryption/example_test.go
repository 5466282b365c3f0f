package encryption_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/examples/encryption"
	"github.com/oncebox/oncebox/localpg"
)

// A service gives its registry the keys, and all its events are sealed. This shows what the registry does with one.
func Example() {
	ctx := context.Background()
	vault, closeVault := exampleVault(ctx)
	defer closeVault()

	keys := encryption.NewKeys(vault)
	registry := event.NewRegistry(event.WithSealer(keys)) // for uow.Config.Registry
	event.Register[moved](registry)

	env := event.Envelope{
		ID: "7", Type: "customer.moved", TenantID: "acme",
		ContentType: event.ContentTypeJSON, Payload: []byte(`{"street":"12 Confidential Road"}`),
	}
	must(registry.Seal(ctx, &env)) // as the flush of a unit of work does
	fmt.Println(env.ContentType, env.Metadata)

	must(keys.Rotate(ctx, "acme")) // what was sealed before goes on being readable
	opened, err := registry.Open(ctx, &env)
	must(err)
	fmt.Println(registry.Decode(opened)) // as a router does

	must(keys.Erase(ctx, "acme"))
	_, err = registry.Open(ctx, &env)
	fmt.Println(errors.Is(err, event.ErrErased), err)
	// Output:
	// application/vnd.oncebox.sealed map[sealed_content_type:application/json sealed_key:acme/1]
	// {12 Confidential Road} <nil>
	// true event: open customer.moved 7: event: the key of the payload was erased: acme/1
}

// exampleVault makes the table in an empty database.
func exampleVault(ctx context.Context) (*bun.DB, func()) {
	local, err := localpg.Start(ctx, localpg.Output(io.Discard))
	must(err)
	pool, err := sql.Open("pgx", local.URL)
	must(err)
	_, err = pool.ExecContext(ctx, encryption.Schema)
	must(err)
	return bun.NewDB(pool, pgdialect.New()), func() {
		must(pool.Close())
		must(local.Close())
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
