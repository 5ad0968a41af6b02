"""How many cases of long tests run always; the others belong to the longer profile (`pytest -m slow`).

Files of which none runs always hold features against each other two by two, or rerun experiments of the papers: what
they say follows from the law that `job/test_lanes.py` draws schedules for, and they are the first to look at when it
breaks.
"""

from __future__ import annotations

NONE = (
    "job/test_doubled_random_queries",
    "job/test_moves_and_migrations",
    "job/test_staged_moves_and_migrations",
    "job/test_weighed_decisions",
    "local/test_cancelled_moves",
    "local/test_moves_in_stages",
    "local/test_routed_beside_trees",
    "scheduling/test_mill_experiments",
    "scheduling/test_shared_migrations",
    "simulated/test_balancing_mutations",
    "simulated/test_balancing_protocols",
    "simulated/test_routed_join",
    "simulated/test_simulated_hot_keys",
)
"""Files without a case that runs always."""

CASES: dict[str, dict[str, int]] = {
    "checkpoint/test_crashes": {
        "test_a_job_killed_at_a_point_resumes_as_if_nothing_had_been": 1,
    },
    "connectors/test_delta_sink": {
        "test_a_delta_table_has_each_result_once": 1,
    },
    "connectors/test_postgres_sink": {
        "test_a_table_of_postgres_has_each_result_once": 1,
    },
    "connectors/test_sinks": {
        "test_a_database_file_has_each_result_once": 2,
    },
    "dashboard/test_page": {
        "test_a_keyboard_is_enough": 0,
        "test_a_move_is_shown_while_it_goes_on_and_cancelled_from_the_page": 0,
        "test_a_page_comes_back_by_itself_when_its_server_does": 0,
        "test_an_export_opens_without_a_server": 0,
        "test_large_figures_stay_within_their_cards": 1,
        "test_the_slider_goes_back_and_the_address_names_the_place": 0,
    },
    "distribution/routed/test_costs": {
        "test_no_other_plan_beats_the_exact_one": 0,
    },
    "distribution/routed/test_track": {
        "test_members_end_in_one_plan_whatever_is_lost_and_whoever_crashes": 2,
    },
    "distribution/test_balancing_machines": {
        "test_ptlb_takes_one_window_and_two_above_one_level_of_joins_by_the_papers_purging": 2,
    },
    "engine/test_every_operator": {
        "test_operator": 75,
    },
    "engine/test_key_types": {
        "test_a_key_of_one_column": 40,
    },
    "engine/test_state_stays_bounded": {
        "test_states_hold_what_is_alive_and_little_more": 4,
    },
    "job/test_adaptive": {
        "test_slots_see_together_what_one_place_sees": 2,
    },
    "job/test_chain": {
        "test_a_crash_at_any_write_changes_nothing": 1,
        "test_a_migration_changes_no_result": 1,
        "test_a_part_migrates_between_operators_that_stay": 1,
        "test_every_schedule_gives_the_same_and_is_remembered": 2,
    },
    "job/test_changed_queries": {
        "test_large_windows_are_filled_over_several_batches_while_the_old_text_answers": 2,
        "test_what_follows_from_kept_rows_is_there_at_once": 14,
    },
    "job/test_conformance_in_slots": {
        "test_slots_and_stages_give_what_is_expected": 45,
    },
    "job/test_doubled_moves": {
        "test_a_crash_at_any_write_changes_nothing": 2,
        "test_sender_and_receiver_may_run_different_plans": 1,
        "test_the_sender_leaves_out_what_is_made_of_new_rows_alone": 1,
    },
    "job/test_faults": {
        "test_a_resumed_query_goes_on_as_if_the_rows_in_between_had_never_come": 1,
        "test_rows_that_fail_by_themselves_are_set_aside_and_the_query_goes_on": 1,
    },
    "job/test_group_moves": {
        "test_a_group_of_scattered_ones_moves_without_writing": 1,
        "test_moving_a_group_writes_nothing": 1,
    },
    "job/test_in_place": {
        "test_keys_of_every_type_meet_where_they_arrive": 1,
        "test_the_first_probes_need_no_stage_of_their_own": 1,
    },
    "job/test_kept_tasks": {
        "test_kept_tasks_leave_the_manifests_and_results_of_tasks_opened_anew": 0,
    },
    "job/test_key_classes": {
        "test_an_aggregated_key_of_a_later_stage_is_divided_by_itself": 1,
        "test_classes_move_at_random_and_results_stay": 1,
        "test_slots_share_a_group_of_a_later_stage": 1,
        "test_slots_share_a_key_that_is_aggregated_or_distinct_in_a_later_stage": 1,
    },
    "job/test_lanes": {
        "test_whatever_changes_no_snapshot_does": 6,
    },
    "job/test_later_stages": {
        "test_queries_in_stages_added_and_dropped_at_random_each_answer_as_if_alone": 1,
    },
    "job/test_local_plans": {
        "test_groups_move_while_their_slots_migrate": 1,
        "test_one_slot_goes_over_to_a_plan_of_its_own": 2,
        "test_random_plans_per_slot_moves_rescales_and_restarts": 1,
        "test_slots_choose_their_plans_by_what_they_see_themselves": 1,
    },
    "job/test_memory": {
        "test_a_small_memory_changes_no_result": 3,
        "test_a_step_that_fails_midway_leaves_nothing_that_counts": 1,
        "test_random_queries_give_the_same_in_little_memory": 6,
    },
    "job/test_moving": {
        "test_a_crash_in_the_middle_of_moves_changes_nothing": 1,
        "test_a_migration_inside_tasks_is_cancelled": 1,
        "test_a_migration_side_by_side_is_cancelled": 1,
        "test_another_number_of_slots": 1,
        "test_groups_move_by_themselves_only_after_a_while": 0,
        "test_moves_at_random": 1,
        "test_moving_state_between_plans_of_several_stages": 1,
        "test_rebalancing_moves_the_state_of_groups_with_them": 1,
        "test_state_that_has_moved_is_not_given_up": 1,
    },
    "job/test_over": {
        "test_a_migration_changes_no_place": 2,
    },
    "job/test_peaks": {
        "test_a_move_of_large_states_takes_no_more_memory_than_one_of_small_ones": 1,
    },
    "job/test_plans_in_stages": {
        "test_all_slots_are_paced_inside_their_tasks": 1,
        "test_one_slot_of_a_query_of_several_stages_has_a_plan_of_its_own": 1,
        "test_random_plans_in_slots_and_random_moves": 1,
        "test_slots_of_a_query_of_several_stages_choose_their_plans": 1,
        "test_slots_that_choose_eagerly_change_no_answer": 1,
    },
    "job/test_power_loss": {
        "test_a_folder_that_is_not_synced_before_the_manifest_is_found_out": 1,
    },
    "job/test_protocol_choice": {
        "test_state_is_sent_unless_rates_have_fallen": 1,
    },
    "job/test_reading": {
        "test_results_read_from_the_checkpoint_are_those_of_the_job": 4,
    },
    "job/test_recordings": {
        "test_a_job_does_what_was_recorded": 3,
    },
    "job/test_released_while_migrating": {
        "test_a_migration_of_a_join_holds_no_batch_back": 1,
    },
    "job/test_replays": {
        "test_a_restart_goes_on_with_what_is_left": 1,
        "test_it_is_cancelled": 1,
        "test_random_queries_migrate_and_restart_at_random": 1,
        "test_state_goes_through_the_new_plan_over_several_batches": 1,
    },
    "job/test_requests": {
        "test_a_request_is_carried_out_once_wherever_the_job_dies": 1,
    },
    "job/test_rerouting": {
        "test_a_migration_to_other_arrival_keys_changes_nothing_in_the_answer": 1,
    },
    "job/test_routed_in_slots": {
        "test_a_cancelled_migration_goes_on_with_the_routed_join": 1,
        "test_migrations_between_the_kinds_in_slots_with_restarts_on_other_slots": 1,
        "test_routed_joins_in_slots_agree_with_the_oracle": 1,
        "test_what_is_above_a_routed_join_is_right_and_migrates": 1,
    },
    "job/test_routed_under_kills": {
        "test_any_join_by_any_plans_is_right_under_kills": 1,
    },
    "job/test_row_windows": {
        "test_rows_that_stay_stored_after_they_were_closed_change_nothing": 1,
        "test_what_is_written_does_not_grow_with_what_is_kept": 1,
    },
    "job/test_sequences_in_slots": {
        "test_sequences_mean_the_same_in_slots": 1,
    },
    "job/test_sharing": {
        "test_queries_added_and_dropped_at_random_each_answer_as_if_alone": 1,
        "test_the_fork_delivers_to_all_who_read_it_under_every_table": 1,
    },
    "job/test_slot_decisions": {
        "test_slots_come_and_go_by_themselves": 1,
    },
    "job/test_spread_groups": {
        "test_a_group_is_spread_and_comes_home_and_nothing_is_written_for_it": 2,
    },
    "job/test_stepping": {
        "test_a_query_of_several_stages_moves_step_by_step_and_sends_nothing": 1,
        "test_random_queries_move_at_random": 1,
    },
    "local/test_durable_sessions": {
        "test_a_migration_goes_on_after_a_restart": 1,
        "test_pushed_rows_are_answered_as_the_oracle_does_across_restarts": 1,
    },
    "local/test_folder_sources": {
        "test_rows_may_be_long": 2,
    },
    "local/test_hot_keys": {
        "test_a_query_begins_while_slots_share_a_key": 1,
    },
    "local/test_links": {
        "test_queries_that_follow_links_agree_with_the_oracle": 1,
        "test_the_bytes_that_are_expected_between_sites_are_those_that_are_counted": 2,
    },
    "local/test_rescaling": {
        "test_slots_come_and_go_while_a_job_runs": 1,
    },
    "local/test_retention": {
        "test_old_results_go_and_what_is_left_is_whole_from_an_instant_on": 1,
    },
    "local/test_sites": {
        "test_joins_of_streams_at_sites_agree_with_the_oracle": 1,
    },
    "local/test_verified_migrations": {
        "test_a_right_plan_takes_over": 1,
        "test_a_wrong_plan_never_takes_over": 1,
        "test_the_end_of_all_streams_ends_a_verification": 1,
    },
    "local/test_verified_slots": {
        "test_a_difference_is_found_under_retention": 1,
        "test_a_right_plan_takes_over_in_the_slots_asked_for": 2,
        "test_a_wrong_plan_takes_over_in_no_slot": 1,
        "test_retention_takes_nothing_that_is_still_to_be_compared": 1,
    },
    "migration/test_cancel": {
        "test_a_migration_can_be_cancelled_at_every_step": 2,
        "test_a_migration_that_could_end_can_still_be_cancelled": 3,
        "test_plans_that_give_at_different_times_are_cancelled_while_they_run": 1,
    },
    "migration/test_conformance": {
        "test_a_cancelled_migration_leaves_no_trace": 1,
        "test_join_orders_replace_each_other": 1,
        "test_joins_below_operators_that_stay_replace_each_other": 1,
        "test_plans_of_selections_and_unions_replace_each_other": 1,
        "test_plans_without_a_split_time_replace_each_other": 1,
        "test_rewritten_plans_replace_each_other": 1,
    },
    "migration/test_mutations": {
        "test_nothing_is_noticed_where_nothing_is_wrong": 1,
    },
    "migration/test_parallel_track_paper": {
        "test_it_gives_what_an_unmigrated_run_gives": 1,
    },
    "migration/test_parts": {
        "test_a_split_needs_ends_only_where_the_part_begins": 2,
        "test_joins_over_what_is_below_the_part_go_by_one_name": 6,
        "test_nothing_is_noticed_where_nothing_is_wrong": 1,
        "test_operators_outside_the_part_do_what_they_would_have_done_anyway": 4,
    },
    "migration/test_verified": {
        "test_a_plan_that_is_wrong_never_takes_over": 2,
    },
    "operators/test_sequence": {
        "test_state_stays_bounded": 1,
    },
    "oracle/test_borrowed_functions": {
        "test_a_call_means_what_it_means_in_duckdb": 180,
    },
    "oracle/test_plain_sql": {
        "test_a_query_means_what_it_means_in_duckdb_at_every_instant": 50,
    },
    "simulated/test_balancing_by_batches": {
        "test_moves_driven_by_batches_are_exact": 2,
    },
    "simulated/test_simulated_jobs": {
        "test_a_job_survives_whatever_a_seed_has_in_store": 3,
        "test_a_seed_is_run_again_exactly": 1,
        "test_drivers_without_a_fence_are_found_out": 0,
        "test_files_that_are_read_again_because_their_folder_was_moved_are_found_out": 0,
    },
    "spark/test_changing_clusters": {
        "test_a_job_goes_to_spark_and_back_in_the_middle_of_a_migration": 0,
    },
    "spark/test_files_on_spark": {
        "test_awkward_texts_mean_on_spark_what_the_table_says": 2,
    },
    "spark/test_processes": {
        "test_a_killed_job_resumes_right": 0,
    },
    "spark/test_push_down": {
        "test_spark_keeps_every_row_that_our_condition_keeps": 0,
    },
    "spark/test_queries": {
        "test_a_planned_migration_runs_on_spark": 0,
    },
    "spark/test_restarts": {
        "test_what_is_available_is_released_as_far_as_the_registers_permit": 0,
    },
    "spark/test_routed_on_spark": {
        "test_routed_joins_and_trees_change_places_on_spark": 0,
        "test_streams_live_at_sites_on_spark": 0,
    },
}
"""How many cases of a test run always, by file and name."""
