-- name: Deposit :one
INSERT INTO accounts (id, cents, version) VALUES ($1, $2, 1)
ON CONFLICT (id) DO UPDATE SET cents = accounts.cents + excluded.cents, version = accounts.version + 1
RETURNING version;
