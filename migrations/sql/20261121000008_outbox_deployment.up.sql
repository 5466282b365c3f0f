-- outbox_layout.deployment says whose database this is. Nothing ever read the id that came before it.
ALTER TABLE outbox_layout DROP COLUMN deployment_id;

INSERT INTO oncebox_migrations (name) VALUES ('20261121000008_outbox_deployment.up.sql');
