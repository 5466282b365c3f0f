package idempotency_test

import (
	"context"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/idempotency"
)

// Pages of docs quote parts of this file, and a test compares them.

func ExampleStore_Erase() {
	forget := func(ctx context.Context, keys *idempotency.Store, db *bun.DB) error {
		removed, err := keys.Erase(ctx, db, "acme", "user-7") // the Scope.Tenant and Scope.Principal of the requests
		fmt.Println(removed, "answers were removed")
		return err
	}
	_ = forget
}
