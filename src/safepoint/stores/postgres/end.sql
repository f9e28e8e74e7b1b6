-- The end of each part. A login, and the functions that it calls, see only the rows of its tenant.
-- Only functions that run as the owner change or remove rows, except that the anchor's heads can be
-- moved forward. Nobody has a right that is not granted above.

do $$
declare
  thing regclass;
begin
  for thing in select attrelid from pg_attribute join pg_class c on c.oid = attrelid
    where relnamespace = '{schema}'::regnamespace and relkind = 'r' and attname = 'tenant'
  loop
    execute format('alter table %s enable row level security, force row level security', thing);
    execute format('create policy tenant on %s using (coalesce((select l.serves'
      ' from {schema}.logins l where l.login = session_user), '''') = any (array[tenant, ''*'']))',
      thing);
    execute format('create trigger refuse before %s delete or truncate on %s for each statement'
      ' when (current_user <> %L) execute function {schema}.refuse()',
      case thing when to_regclass('safepoint_anchor.heads') then '' else 'update or' end,
      thing, current_user);
  end loop;
end $$;
revoke all on all functions in schema {schema} from public;
reset role;
